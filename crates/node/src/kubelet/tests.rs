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
            ("/k/pod-resources".to_owned(), is("kubelet.sock"), Change::Socket),
            ("/etc/kubernetes".to_owned(), is("kubelet.yaml"), Change::Config),
            (drop_ins.display().to_string(), Names::All, Change::Config),
            (drop_ins.join("sub").display().to_string(), Names::All, Change::Config),
            (drop_ins.join("sub/sub").display().to_string(), Names::All, Change::Config),
            (format!("{}/fs/cgroup/kubepods.slice", sysfs.path().display()), Names::Visible, Change::Pods),
        ]
    );
}
