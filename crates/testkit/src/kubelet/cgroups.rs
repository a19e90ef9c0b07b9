//! Stand-ins for the cgroups of pods, which the kubelets of the rig do not make.
//!
//! In: a kubelet's root folder. Out: `fs/cgroup/kubepods/pod<uid>` in the machine's `sys`. Never: an earlier moment
//! than the real one: the kubelet makes a pod's folder right after its cgroup (`Kubelet.SyncPod`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use node::watch::{Names, Target, Watcher};
use tokio::task::JoinHandle;

/// The task that makes and removes them; it ends when this is dropped.
#[derive(Debug)]
pub struct PodCgroups(JoinHandle<()>);

impl PodCgroups {
    /// Follows the pods' folders below a kubelet's root.
    pub(super) fn follow(root: &Path, sys: &Path) -> anyhow::Result<Self> {
        let (pods, cgroups) = (root.join("pods"), sys.join("fs/cgroup/kubepods"));
        fs::create_dir_all(&cgroups).with_context(|| format!("making {}", cgroups.display()))?;
        let target = Target { dir: pods.clone(), names: Names::Visible, tag: () };
        let mut watcher = Watcher::new(vec![target])?;
        Ok(Self(tokio::spawn(async move {
            loop {
                follow_once(&pods, &cgroups);
                if watcher.changed().await.is_err() {
                    return;
                }
            }
        })))
    }
}

impl Drop for PodCgroups {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn follow_once(pods: &Path, cgroups: &Path) {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let wanted: Vec<PathBuf> = names(pods).iter().map(|uid| cgroups.join(format!("pod{uid}"))).collect();
    // An existing one stays as it is, and one that is gone is gone.
    wanted.iter().for_each(|dir| drop(fs::create_dir(dir)));
    let old = names(cgroups).into_iter().map(|name| cgroups.join(name));
    old.filter(|dir| !wanted.contains(dir)).for_each(|dir| drop(fs::remove_dir(dir)));
}
