//! What is read at which look, with files for kubelet and machine.

use std::fs;

use api::nrt::attribute;
use node::podresources::Address;
use prometheus_client::registry::Registry;
use topology::fingerprint::Method;

use super::*;
use crate::settings::KubeletConfigSource;

/// A scanner of one zone with a kubelet whose file says this policy; none: there is no file.
struct Rig {
    dir: tempfile::TempDir,
    scanner: Scanner,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("devices/system/cpu/online", "0-3"),
            ("devices/system/node/online", "0"),
            ("devices/system/node/node0/cpulist", "0-3"),
            ("devices/system/node/node0/meminfo", "Node 0 MemTotal: 1024 kB"),
            ("get_allocatable_resources.json", r#"{"cpu_ids": [1, 2, 3]}"#),
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for cpu in 0..4 {
            let topology = dir.path().join(format!("devices/system/cpu/cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), cpu.to_string()).unwrap();
        }
        let path = dir.path().join("config.yaml");
        let sources = Sources {
            podresources: Address::Folder(dir.path().to_owned()),
            sysfs: dir.path().to_owned(),
            kubelet_root: None,
            kubelet_config: KubeletConfigSource::File { path, drop_ins: None },
            policy: None,
            scope: None,
        };
        let accounting = Accounting {
            namespace: None,
            exclude: BTreeSet::new(),
            exclude_pods: vec![],
            reference: None,
            fingerprint: Some(Method::All),
            topology_policies: false,
        };
        let metrics = Metrics::register(&mut Registry::default(), "n");
        Self { scanner: Scanner::new(&sources, &accounting, metrics).unwrap(), dir }
    }

    fn has(&self, policy: &str, pod: &str) {
        let config = format!("topologyManagerPolicy: {policy}");
        fs::write(self.dir.path().join("config.yaml"), config).unwrap();
        let list = format!(r#"{{"pod_resources": [{{"namespace": "default", "name": "{pod}"}}]}}"#);
        fs::write(self.dir.path().join("list.json"), list).unwrap();
    }

    /// Policy and fingerprint.
    async fn says(&mut self) -> [String; 2] {
        let attributes = self.scanner.scan().await.unwrap().content.attributes;
        ["topologyManagerPolicy", "nodeTopologyPodsFingerprint"]
            .map(|name| attribute::get(&attributes, name).unwrap_or_default().to_owned())
    }
}

#[tokio::test]
async fn the_kubelets_configuration_is_read_once_and_the_fingerprint_each_time() {
    const OF_0: &str = "pfp0v001fe53c4dbd2c5f4a0";
    let mut rig = Rig::new();
    rig.has("restricted", "test-pod-0");
    assert_eq!(rig.says().await, ["restricted", OF_0]);
    rig.has("best-effort", "test-pod-1");
    let [policy, fingerprint] = rig.says().await;
    assert_eq!(policy, "restricted");
    assert_ne!(fingerprint, OF_0);
    rig.scanner.forget_allocatable();
    assert_eq!(rig.says().await[0], "restricted");
    rig.scanner.forget();
    assert_eq!(rig.says().await[0], "best-effort");
}

/// There is no result, and so nothing to publish, until the file can be read.
#[tokio::test]
async fn missing_kubelet_information_is_an_error_and_tried_again() {
    let mut rig = Rig::new();
    rig.has("restricted", "test-pod-0");
    let file = rig.dir.path().join("config.yaml");
    fs::remove_file(&file).unwrap();
    for _ in 0..2 {
        let error = rig.scanner.scan().await.unwrap_err();
        assert_eq!(error.input(), "kubelet_config");
        let text = runtime::client::chain(&error);
        assert!(text.contains("/config.yaml"), "{text}");
    }
    rig.has("restricted", "test-pod-0");
    assert_eq!(rig.says().await[0], "restricted");
}

/// A kubelet that contradicts the kernel in thousands of ways does not fill the log.
#[test]
fn remarks_have_a_limit_of_their_own() {
    let all: Vec<Remark> = (0..10_000).map(|id| Remark::StrayCpus(id.to_string())).collect();
    let now = Instant::now();
    let mut lines = TokenBucket::new(REMARKS.0, REMARKS.1, now);
    assert_eq!(log_remarks(all.iter(), &mut lines, now), 20);
    assert_eq!(log_remarks(all.iter(), &mut lines, now + Duration::from_secs(1)), 0);
    assert_eq!(log_remarks(all.iter(), &mut lines, now + Duration::from_secs(61)), 1);
}
