//! The machine: its clocks, what the kernel has no room for, directories that go.

use std::fs;

use testkit::podresources::Server;
use testkit::wall_clock::WallClock;

use super::*;
use process::start;

/// The most bytes of an answer.
const MAX_ANSWER: usize = 16 << 20;
const YEAR: i64 = 365 * 24 * 3600;

/// Nothing is decided by the wall clock: it may jump by years in both directions.
#[tokio::test]
async fn wall_clock_jumps() {
    let Some(mut rig) = Rig::start("clock-jumps").await else { return };
    let clock = WallClock::build(rig.dir()).unwrap();
    let variables = clock.variables();
    let exporter = start(&rig, &[], &variables.each_ref().map(|(name, value)| (*name, value.as_str())));
    rig.arrives().await;
    for (cpu, years) in [(2, 60), (3, -20), (4, 100), (5, 0)] {
        clock.set(years).unwrap();
        rig.admit(&format!("b{cpu}"), &[cpu]);
        rig.arrives().await;
    }
    let log = fs::read_to_string(exporter.log()).unwrap();
    let centuries = ["20", "21"].map(|century| {
        log.lines().filter(|line| line.trim_start_matches("\u{1b}[2m").starts_with(century)).count()
    });
    assert!(centuries.iter().all(|lines| *lines > 0), "the clock did jump: {log}");
    rig.survived_well(Writes::Exactly(5)).await;
}

/// The largest answer that is taken fits into the memory that the exporter is given in its container. With too little
/// memory for it the exporter ends with one line, and the next one publishes what fits.
#[tokio::test]
async fn memory_is_short_for_the_largest_answer() {
    const GIVEN_KIB: u64 = 100 << 10;
    let Some(mut rig) = Rig::start("memory").await else { return };
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    let before = exporter.memory().unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.pid())).unwrap();
    let data =
        status.lines().find_map(|line| line.strip_prefix("VmData:")?.split_whitespace().next()).unwrap();
    let data = data.parse::<u64>().unwrap() << 10;
    rig.kubelet.set(vec![pod("a", &[1]), pod("b", &[5])]);
    rig.kubelet.admit_filler(MAX_ANSWER).unwrap();
    rig.is_true_now();
    rig.arrives().await;
    let after = exporter.memory().unwrap();
    println!(
        "memory: {} KiB before, {} KiB at the peak of the largest answer",
        before.rss_kib, after.peak_kib
    );
    assert!(after.peak_kib < GIVEN_KIB, "{after:?}");
    exporter.kill();

    // Enough to start with, not for the answer.
    let limit = format!("--data={}", data + MAX_ANSWER as u64 / 2);
    let starved = start(&rig, &["prlimit", &limit, "--"], &[]);
    until("an end", async || starved.exit().map(drop)).await;
    let told = starved.log_tail(20);
    assert!(told.contains("memory allocation of ") && told.contains(" bytes failed"), "{told}");
    rig.release("filler");
    starved.restart().unwrap();
    rig.admit("c", &[6]);
    rig.survived_well(Writes::Exactly(3)).await;
}

/// What a virtual machine that was halted sees, or a process that got no CPU: all timers are over at once.
#[tokio::test]
async fn time_stands_still_and_jumps() {
    let Some(mut rig) = Rig::start("frozen").await else { return };
    rig.flags.push("--sleep-interval=100ms".to_owned());
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    exporter.pause().unwrap();
    // A call that was under way is counted by now.
    rig.is_quiet().await;
    let before = rig.kubelet.calls();
    rig.admit("b", &[5]);
    rig.admit("c", &[6]);
    rig.release("a");
    // The passing of time is the fault here: twenty periods of the timer.
    rig.is_quiet().await;
    assert_eq!((rig.kubelet.calls(), rig.writes()), (before, 1), "it does stand still");
    let resumed = Instant::now();
    exporter.resume().unwrap();
    rig.arrives().await;
    // On a loaded machine the timer comes again meanwhile; twenty missed periods would be some forty calls.
    let missed = rig.kubelet.calls() - before;
    let seconds = resumed.elapsed().as_secs();
    assert!(missed < 12 + 30 * seconds, "{missed} calls in {seconds} s");
    rig.survived_well(Writes::Exactly(2)).await;
}

/// The clock that all waits are measured with has only just begun, or runs since decades.
#[tokio::test]
async fn started_just_after_boot_and_long_after() {
    let Some(mut rig) = Rig::start("boot").await else { return };
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: i64 = uptime.split('.').next().unwrap().parse().unwrap();
    for (name, cpu, offset) in [("b", 5, -uptime), ("c", 6, 50 * YEAR)] {
        let offsets = [format!("--monotonic={offset}"), format!("--boottime={offset}")];
        let wrapper = ["unshare", "--time", &offsets[0], &offsets[1]];
        let exporter = start(&rig, &wrapper, &[]);
        rig.arrives().await;
        rig.is_ready().await;
        let zones =
            [std::process::id(), exporter.pid()].map(|pid| fs::read_link(format!("/proc/{pid}/ns/time")));
        assert_ne!(zones[0].as_ref().unwrap(), zones[1].as_ref().unwrap(), "it has a clock of its own");
        rig.admit(name, &[cpu]);
        rig.arrives().await;
    }
    rig.survived(Writes::Exactly(3)).await;
}

/// The kernel's queue of file events is full when the one that matters comes.
#[tokio::test]
async fn file_events_overflow() {
    let Some(mut rig) = Rig::start("overflow").await else { return };
    let _exporter = rig.export().await;
    rig.is_quiet().await;
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // This test has one thread: the exporter on it reads nothing until the next `await`. The names alternate because
    // the kernel merges equal neighbours, and none of them matters.
    for index in 0..=limit {
        fs::write(rig.kubelet.root().join(if index % 2 == 0 { ".a" } else { ".b" }), "").unwrap();
    }
    rig.admit("b", &[5]);
    rig.survived_well(Writes::Exactly(2)).await;
}

/// Without file events the timer does it.
#[tokio::test]
async fn no_file_events_to_be_had() {
    for (name, limit) in
        [("no-instances", "max_inotify_instances 0"), ("no-watches", "max_inotify_watches 3")]
    {
        let Some(mut rig) = Rig::start(name).await else { return };
        rig.flags.push("--sleep-interval=200ms".to_owned());
        let (limit, value) = limit.split_once(' ').unwrap();
        // Each user namespace has limits of its own.
        let script = format!("echo {value} > /proc/sys/user/{limit}; exec \"$@\"");
        let exporter = start(&rig, &["unshare", "--user", "--map-root-user", "sh", "-c", &script, "sh"], &[]);
        rig.arrives().await;
        let warned = async || exporter.log_tail(100).contains("no file events").then_some(());
        until("a warning", warned).await;
        rig.admit("b", &[5]);
        rig.arrives().await;
        rig.release("a");
        rig.survived_well(Writes::Exactly(3)).await;
    }
}

/// A directory that goes and comes again is watched again.
#[tokio::test]
async fn pod_directories_removed() {
    let Some(mut rig) = Rig::start("pods-gone").await else { return };
    let _exporter = rig.export().await;
    let pods = rig.kubelet.root().join("pods");
    for (round, cpu) in [(0, 5), (1, 2)] {
        fs::remove_dir_all(&pods).unwrap();
        fs::create_dir(&pods).unwrap();
        rig.is_quiet().await;
        // Only the pod's directory tells.
        let mut list = rig.kubelet.pods();
        list[0] = pod("a", &[cpu]);
        rig.kubelet.set(list);
        rig.is_true_now();
        fs::create_dir(pods.join(format!("uid-{round}"))).unwrap();
        rig.arrives().await;
    }
    rig.survived_well(Writes::Exactly(3)).await;
}

/// The kubelet's whole directory is removed under it, and a new kubelet begins with nothing.
#[tokio::test]
async fn kubelet_directory_removed() {
    let Some(mut rig) = Rig::start("root-gone").await else { return };
    let _exporter = rig.export().await;
    let root = rig.kubelet.root().to_owned();
    let config = fs::read(root.join("config.yaml")).unwrap();
    rig.kubelet.stop();
    fs::remove_dir_all(&root).unwrap();
    rig.health_says("[-]scan failed: ").await;
    rig.kubelet = Server::start(&root, 8).unwrap();
    fs::write(root.join("config.yaml"), config).unwrap();
    rig.is_true_now();
    rig.arrives().await;
    rig.admit("b", &[5]);
    rig.survived_well(Writes::Exactly(3)).await;
}

/// There is no room for the status files: that is told, leaves no half of a file, and changes nothing about publishing.
#[tokio::test]
async fn disk_full_for_status_files() {
    let Some(mut rig) = Rig::start("disk-full").await else { return };
    let dir = rig.dir().join("status").display().to_string();
    fs::create_dir(&dir).unwrap();
    rig.flags.push(format!("--pods-fingerprint-status-file={dir}/last"));
    rig.flags.push(format!("--pods-fingerprint-status-dir={dir}"));
    // A file system that only this process sees, and that is full already.
    let script =
        "mount -t tmpfs -o size=16k tmpfs \"$1\"; dd if=/dev/zero of=\"$1/full\" bs=4k; shift; exec \"$@\"";
    let exporter = start(&rig, &["unshare", "--mount", "sh", "-c", script, "sh", &dir], &[]);
    rig.arrives().await;
    let inside = format!("/proc/{}/root{dir}", exporter.pid());
    let files = || {
        let names =
            fs::read_dir(&inside).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    for (name, cpu) in [("b", 5), ("c", 6)] {
        rig.admit(name, &[cpu]);
        rig.arrives().await;
    }
    let told = async || exporter.log_tail(1000).contains("No space left on device").then_some(());
    until("told", told).await;
    rig.health_says("[+]scan ok").await;
    assert_eq!(files().into_iter().collect::<Vec<_>>(), ["full"]);

    fs::remove_file(format!("{inside}/full")).unwrap();
    rig.admit("d", &[7]);
    let written = async || {
        let text = fs::read_to_string(format!("{inside}/last")).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        text.contains("\"d\"").then_some(())
    };
    until("the status is written", written).await;
    rig.survived_well(Writes::Exactly(4)).await;
}
