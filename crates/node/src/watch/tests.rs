use std::fs;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;

/// A kubelet-like root with a watcher on it and on two directories below.
struct Rig {
    dir: TempDir,
    watcher: Watcher<char>,
}

impl Rig {
    fn new(create: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in create {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let target = |name: &str, names, tag| Target { dir: dir.path().join(name), names, tag };
        let watcher = Watcher::new(vec![
            target("k", Names::EndWith("_state"), 's'),
            target("k/plugins", Names::Is("checkpoint".to_owned()), 'd'),
            target("k/pods", Names::Visible, 'p'),
            target("k/asked", Names::Touched("now".to_owned()), 'n'),
        ]);
        Self { watcher: watcher.unwrap(), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Does something and returns the tags it is reported under.
    async fn after(&mut self, action: impl FnOnce(&Self)) -> String {
        action(self);
        self.reported().await
    }

    async fn reported(&mut self) -> String {
        let changed = tokio::time::timeout(Duration::from_secs(10), self.watcher.changed()).await;
        changed.expect("an event within 10 s").unwrap().into_keys().collect()
    }

    /// Whether nothing is reported of what happened until now. A file that matters is written last and must be all
    /// there is, so no time is waited.
    async fn only_marker(&mut self) -> bool {
        self.after(|rig| fs::write(rig.path("k/marker_state"), "").unwrap()).await == "s"
    }
}

/// The way the kubelet writes: a temporary file, renamed.
fn checkpoint(rig: &Rig, name: &str) {
    let temporary = rig.path(name).with_file_name(".1234");
    fs::write(&temporary, "x").unwrap();
    fs::rename(temporary, rig.path(name)).unwrap();
}

#[tokio::test]
async fn files_that_matter_are_reported_and_others_are_not() {
    let mut rig = Rig::new(&["k/plugins", "k/pods"]);
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/cpu_manager_state")).await, "s");
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/plugins/checkpoint")).await, "d");
    assert_eq!(rig.after(|rig| fs::create_dir(rig.path("k/pods/uid")).unwrap()).await, "p");
    assert_eq!(rig.after(|rig| fs::remove_dir(rig.path("k/pods/uid")).unwrap()).await, "p");
    assert_eq!(rig.after(|rig| fs::remove_file(rig.path("k/cpu_manager_state")).unwrap()).await, "s");
    fs::write(rig.path("k/other"), "").unwrap();
    fs::write(rig.path("k/pods/.hidden"), "").unwrap();
    fs::write(rig.path("k/plugins/kubelet.sock"), "").unwrap();
    assert!(rig.only_marker().await);
}

#[tokio::test]
async fn a_touch_counts_where_it_is_asked_for_and_nowhere_else() {
    let mut rig = Rig::new(&["k/asked", "k/plugins"]);
    let touch = |path: PathBuf| {
        let file = fs::File::options().append(true).open(path).unwrap();
        // Sets times without writing: `utimensat` alone, as some notifiers do.
        let times =
            fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH).set_modified(SystemTime::UNIX_EPOCH);
        file.set_times(times).unwrap();
        std::mem::forget(file); // closing it would be a write event of its own
    };
    assert_eq!(rig.after(|rig| fs::write(rig.path("k/asked/now"), "").unwrap()).await, "n");
    assert_eq!(rig.after(|rig| touch(rig.path("k/asked/now"))).await, "n");
    assert_eq!(rig.after(|rig| fs::remove_file(rig.path("k/asked/now")).unwrap()).await, "n");
    assert_eq!(rig.after(|rig| fs::write(rig.path("k/asked/now"), "").unwrap()).await, "n", "a new inode");
    fs::write(rig.path("k/asked/other"), "").unwrap();
    rig.after(|rig| checkpoint(rig, "k/plugins/checkpoint")).await;
    touch(rig.path("k/asked/other"));
    touch(rig.path("k/plugins/checkpoint"));
    assert!(rig.only_marker().await, "other names, and times of files whose content matters");
}

#[tokio::test]
async fn bursts_are_merged() {
    let mut rig = Rig::new(&["k/plugins", "k/pods"]);
    let reported = rig.after(|rig| {
        for _ in 0..50 {
            checkpoint(rig, "k/cpu_manager_state");
            checkpoint(rig, "k/plugins/checkpoint");
        }
    });
    assert_eq!(reported.await, "ds");
    assert!(rig.only_marker().await);
}

#[tokio::test]
async fn renames_are_counted_one_by_one() {
    let mut rig = Rig::new(&["k/plugins", "k/pods"]);
    let mut seen = 0;
    for _ in 0..500 {
        checkpoint(&rig, "k/plugins/checkpoint");
    }
    while seen < 500 {
        let changed = tokio::time::timeout(Duration::from_secs(10), rig.watcher.changed()).await;
        let counts = changed.expect("an event within 10 s").unwrap();
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&'d']);
        seen += counts[&'d'];
    }
    assert_eq!(seen, 500);
    assert!(rig.only_marker().await);
}

#[tokio::test]
async fn directories_may_appear_later() {
    let mut rig = Rig::new(&[]);
    assert_eq!(rig.after(|rig| fs::create_dir(rig.path("k")).unwrap()).await, "s");
    assert_eq!(rig.after(|rig| fs::create_dir(rig.path("k/plugins")).unwrap()).await, "d");
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/plugins/checkpoint")).await, "d");
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/memory_manager_state")).await, "s");
}

#[tokio::test]
async fn a_whole_tree_may_appear_at_once() {
    let mut rig = Rig::new(&["elsewhere/plugins", "elsewhere/pods"]);
    assert_eq!(rig.after(|rig| fs::rename(rig.path("elsewhere"), rig.path("k")).unwrap()).await, "dps");
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/plugins/checkpoint")).await, "d");
}

#[tokio::test]
async fn directories_may_be_removed_and_created_again() {
    let mut rig = Rig::new(&["k/plugins", "k/pods"]);
    for _ in 0..3 {
        assert_eq!(rig.after(|rig| fs::remove_dir_all(rig.path("k/plugins")).unwrap()).await, "d");
        assert_eq!(rig.after(|rig| fs::create_dir(rig.path("k/plugins")).unwrap()).await, "d");
        assert_eq!(rig.after(|rig| checkpoint(rig, "k/plugins/checkpoint")).await, "d");
    }
    assert_eq!(rig.after(|rig| fs::remove_dir_all(rig.path("k")).unwrap()).await, "dps");
    assert_eq!(rig.after(|rig| fs::create_dir_all(rig.path("k/pods")).unwrap()).await, "ps");
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/cpu_manager_state")).await, "s");
}

#[tokio::test]
async fn a_directory_renamed_away_is_no_longer_looked_at() {
    let mut rig = Rig::new(&["k/plugins", "k/pods"]);
    let reported = rig.after(|rig| {
        fs::rename(rig.path("k/plugins"), rig.path("old")).unwrap();
        fs::create_dir(rig.path("k/plugins")).unwrap();
    });
    assert_eq!(reported.await, "d");
    checkpoint(&rig, "old/checkpoint");
    assert!(rig.only_marker().await);
    assert_eq!(rig.after(|rig| checkpoint(rig, "k/plugins/checkpoint")).await, "d");
}

#[tokio::test]
async fn a_replaced_parent_is_found_by_looking() {
    let mut rig = Rig::new(&["up/k/plugins"]);
    let dir = rig.path("up/k/plugins");
    rig.watcher = Watcher::new(vec![Target { dir, names: Names::Visible, tag: 'x' }]).unwrap();
    assert!(rig.watcher.recheck().unwrap().is_empty());
    fs::rename(rig.path("up"), rig.path("down")).unwrap();
    fs::create_dir_all(rig.path("up/k/plugins")).unwrap();
    assert_eq!(rig.watcher.recheck().unwrap().into_keys().collect::<String>(), "x");
    fs::write(rig.path("down/k/plugins/old"), "").unwrap();
    assert_eq!(rig.after(|rig| fs::write(rig.path("up/k/plugins/new"), "").unwrap()).await, "x");
    assert!(rig.watcher.recheck().unwrap().is_empty());
}

/// What is written into a device node is no news of devices; what the kubelet writes with each pod none of sockets.
#[tokio::test]
async fn some_names_matter_in_some_ways() {
    let mut rig = Rig::new(&["dev", "plugins"]);
    let target = |name: &str, names, tag| Target { dir: rig.path(name), names, tag };
    let targets = vec![
        target("dev", Names::Listed("tty".to_owned()), 'd'),
        target("plugins", Names::Other("checkpoint"), 'p'),
    ];
    rig.watcher = Watcher::new(targets).unwrap();
    fs::write(rig.path("dev/null"), "").unwrap();
    fs::write(rig.path("plugins/checkpoint"), "").unwrap();
    fs::write(rig.path("plugins/.temporary"), "").unwrap();
    assert_eq!(rig.after(|rig| fs::write(rig.path("dev/tty0"), "").unwrap()).await, "d");
    // Written once more, and a socket after it: only that is told.
    fs::write(rig.path("dev/tty0"), "x").unwrap();
    assert_eq!(rig.after(|rig| fs::write(rig.path("plugins/dp.1"), "").unwrap()).await, "p");
    assert_eq!(rig.after(|rig| fs::remove_file(rig.path("dev/tty0")).unwrap()).await, "d");
}

#[tokio::test]
async fn an_overflow_counts_as_an_event_everywhere() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut rig = Rig::new(&["k/plugins", "k/pods"]);
    // Alternating names defeat the kernel's merging of equal neighbours; none of them matters.
    for index in 0..=limit {
        fs::write(rig.path(if index % 2 == 0 { "k/a" } else { "k/b" }), "").unwrap();
    }
    let mut reported = String::new();
    while reported != "dnps" {
        reported = rig.reported().await;
    }
    assert!(rig.only_marker().await);
}

/// What a container sees whose mount is the file alone: an open file, by its path in `/proc`.
#[tokio::test]
async fn a_file_without_its_directory_shows_its_changes_and_its_replacement() {
    let mut rig = Rig::new(&["k"]);
    let path = rig.path("config.yaml");
    fs::write(&path, "a").unwrap();
    let file = fs::File::open(&path).unwrap();
    let mount = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    rig.watcher = Watcher::new(vec![
        Target { dir: mount, names: Names::Itself, tag: 'c' },
        Target { dir: rig.path("k"), names: Names::EndWith("_state"), tag: 's' },
    ])
    .unwrap();
    assert_eq!(rig.after(|rig| fs::write(rig.path("config.yaml"), "b").unwrap()).await, "c");
    fs::write(rig.path("next"), "c").unwrap();
    assert_eq!(rig.after(|rig| fs::rename(rig.path("next"), rig.path("config.yaml")).unwrap()).await, "c");
    fs::write(&path, "d").unwrap();
    assert!(rig.only_marker().await, "another file is not mounted");
}

/// Cgroups count when they come, not when they go.
#[tokio::test]
async fn created_names_are_counted() {
    let mut rig = Rig::new(&["k/kubepods"]);
    let target = Target { dir: rig.path("k/kubepods"), names: Names::Created("pod"), tag: 'p' };
    let marker = Target { dir: rig.path("k"), names: Names::EndWith("_state"), tag: 's' };
    rig.watcher = Watcher::new(vec![target, marker]).unwrap();
    for name in ["pod1", "kubepods-pod2.slice", "burstable"] {
        fs::create_dir(rig.path("k/kubepods").join(name)).unwrap();
    }
    let changed = tokio::time::timeout(Duration::from_secs(10), rig.watcher.changed()).await;
    assert_eq!(changed.expect("an event within 10 s").unwrap(), Counts::from([('p', 2)]));
    fs::remove_dir(rig.path("k/kubepods/pod1")).unwrap();
    assert!(rig.only_marker().await);
}
