use super::*;

#[test]
fn directories_to_watch() {
    let sysfs = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(sysfs.path().join("fs/cgroup/kubepods.slice")).unwrap();
    let drop_ins = sysfs.path().join("conf.d");
    std::fs::create_dir_all(drop_ins.join("sub/sub")).unwrap();
    std::fs::write(drop_ins.join("1.conf"), "").unwrap();
    let config = Files { file: "/etc/kubernetes/kubelet.yaml".into(), drop_ins: Some(drop_ins.clone()) };
    let [root, socket] = ["/k", "/k/pod-resources/kubelet.sock"].map(Path::new);
    let targets = targets(Some(root), socket, &config, sysfs.path());
    let dirs: Vec<_> =
        targets.iter().map(|t| (t.dir.display().to_string(), t.names.clone(), t.tag)).collect();
    let is = |name: &str| Names::Is(name.to_owned());
    assert_eq!(
        dirs,
        [
            ("/k".to_owned(), Names::EndWith("_state"), Change::Allocation),
            ("/k".to_owned(), is("allocated_pods_state"), Change::Admission),
            ("/k/device-plugins".to_owned(), Names::Visible, Change::Devices),
            ("/k/pods".to_owned(), Names::Visible, Change::Pods),
            ("/etc/kubernetes/kubelet.yaml".to_owned(), Names::Itself, Change::Config),
            ("/k/pod-resources".to_owned(), is("kubelet.sock"), Change::Socket),
            ("/etc/kubernetes".to_owned(), is("kubelet.yaml"), Change::Config),
            (drop_ins.display().to_string(), Names::All, Change::Config),
            (drop_ins.join("sub").display().to_string(), Names::All, Change::Config),
            (drop_ins.join("sub/sub").display().to_string(), Names::All, Change::Config),
            (format!("{}/fs/cgroup/kubepods.slice", sysfs.path().display()), Names::Visible, Change::Pods),
        ]
    );
}

/// Without the root directory, new cgroups of pods show admissions.
#[test]
fn cgroups_stand_in_for_the_root_directory() {
    let sysfs = tempfile::tempdir().unwrap();
    let parents = ["kubepods/burstable", "kubelet.slice/kubelet-kubepods.slice"];
    let (socket, config) = (Path::new("/k/pod-resources/kubelet.sock"), Files::default());
    let seen = |root: Option<&Path>| -> Vec<_> {
        let targets = targets(root, socket, &config, sysfs.path()).into_iter();
        let of_pods = targets.filter(|target| target.dir.starts_with(sysfs.path().join("fs")));
        of_pods.map(|target| (target.names, target.tag)).collect()
    };
    assert_eq!((seen(None), admissions(None, sysfs.path())), (Vec::new(), None));
    for parent in parents {
        std::fs::create_dir_all(sysfs.path().join("fs/cgroup").join(parent)).unwrap();
    }
    let both = [(POD_CGROUP, Change::Admission), (Names::Visible, Change::Pods)];
    assert_eq!(seen(None), [both.clone(), both.clone(), both].concat());
    assert_eq!(admissions(None, sysfs.path()), Some(sysfs.path().join("fs/cgroup/kubepods")));

    let root = sysfs.path();
    assert_eq!(seen(Some(root)), vec![(Names::Visible, Change::Pods); 3]);
    assert_eq!(admissions(Some(root), sysfs.path()), None, "the kubelet has not admitted a pod yet");
    std::fs::write(root.join(ADMISSIONS), "").unwrap();
    assert_eq!(admissions(Some(root), sysfs.path()), Some(root.join(ADMISSIONS)));
}
