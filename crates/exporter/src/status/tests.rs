use super::*;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

struct Rig {
    dir: TempDir,
    recorder: Recorder,
}

impl Rig {
    /// A recorder with both kinds of file, for node `a.b.c`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dumps")).unwrap();
        let recorder = Recorder::new(&files(dir.path()), "a.b.c");
        Self { dir, recorder }
    }

    fn record(&mut self, pods: &[&str], second: i64) {
        self.recorder.record(&status(pods), Timestamp::from_second(second).unwrap());
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("pods")
    }

    fn dump(&self) -> PathBuf {
        self.dir.path().join("dumps/a_b_c")
    }

    /// What a path says now; it is removed, so that the next write shows.
    fn taken(&self, path: &Path) -> Option<String> {
        let text = fs::read_to_string(path).ok();
        let _ = fs::remove_file(path);
        text
    }
}

fn files(dir: &Path) -> StatusFiles {
    StatusFiles { file: Some(dir.join("pods")), dump: Some(dir.join("dumps")) }
}

fn status(pods: &[&str]) -> Status {
    let mut status = Status::new("a.b.c");
    pods.iter().for_each(|pod| status.add("ns", pod));
    status.sign();
    status
}

/// The files of a directory that readers should see: all but temporary ones.
fn visible(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let names = fs::read_dir(dir).unwrap().map(name);
    names.filter(|name| !name.starts_with(runtime::atomic_file::TEMPORARY_PREFIX)).collect()
}

/// `pods@second ..` of a dump.
fn show(dump: &str) -> String {
    let all: Vec<Value> = serde_json::from_str(dump).unwrap();
    let one = |status: &Value| {
        assert_eq!(status["nodeName"], "a.b.c");
        let pods = status["pods"].as_array().cloned().unwrap_or_default();
        let pods: Vec<_> = pods.iter().map(|pod| pod["Name"].as_str().unwrap().to_owned()).collect();
        let time = status["recordTime"].as_str().unwrap().to_owned();
        format!("{}@{}", pods.join("+"), time.parse::<Timestamp>().unwrap().as_second())
    };
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_file_says_the_last_status_and_the_dump_the_last_ten() {
    let mut rig = Rig::new();
    rig.record(&["x"], 1);
    assert_eq!(fs::read_to_string(rig.file()).unwrap(), status(&["x"]).to_json());
    assert!(!rig.dump().exists() && rig.recorder.is_due());
    rig.record(&["x", "y"], 2);
    assert_eq!(fs::read_to_string(rig.file()).unwrap(), status(&["x", "y"]).to_json());
    rig.recorder.tick();
    assert_eq!(show(&fs::read_to_string(rig.dump()).unwrap()), "x@1 x+y@2");
    assert_eq!(visible(&rig.dir.path().join("dumps")), ["a_b_c"]);
    for second in 3..13 {
        rig.record(&[&format!("p{second}")], second);
    }
    rig.recorder.tick();
    let shown = show(&fs::read_to_string(rig.dump()).unwrap());
    assert!(shown.starts_with("p3@3 p4@4 ") && shown.ends_with(" p12@12"), "{shown}");
}

#[test]
fn what_says_the_same_is_not_written_again() {
    let mut rig = Rig::new();
    rig.record(&["x"], 1);
    rig.recorder.tick();
    let inodes = |rig: &Rig| {
        use std::os::unix::fs::MetadataExt as _;
        [rig.file(), rig.dump()].map(|path| fs::metadata(path).unwrap().ino())
    };
    let before = inodes(&rig);
    for second in 2..5 {
        rig.record(&["x"], second);
        assert!(!rig.recorder.is_due());
        rig.recorder.tick();
    }
    assert_eq!(inodes(&rig), before);
    // A removed file is written again.
    let (file, dump) = (rig.taken(&rig.file()), rig.taken(&rig.dump()));
    rig.record(&["x"], 5);
    rig.recorder.tick();
    assert_eq!((rig.taken(&rig.file()), rig.taken(&rig.dump())), (file, dump));
}

#[test]
fn what_could_not_be_written_is_written_when_it_can() {
    let mut rig = Rig::new();
    fs::create_dir(rig.file()).unwrap();
    fs::create_dir(rig.dump()).unwrap();
    rig.record(&["x"], 1);
    rig.recorder.tick();
    assert!(rig.recorder.is_due());
    fs::remove_dir(rig.file()).unwrap();
    fs::remove_dir(rig.dump()).unwrap();
    rig.record(&["x"], 2);
    rig.recorder.tick();
    assert_eq!(fs::read_to_string(rig.file()).unwrap(), status(&["x"]).to_json());
    assert_eq!(show(&fs::read_to_string(rig.dump()).unwrap()), "x@1");
    assert!(!rig.recorder.is_due());
}

#[test]
fn what_cannot_be_used_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = |files: &StatusFiles| {
        let recorder = Recorder::new(files, "a");
        (recorder.file.is_some(), recorder.dump.is_some(), recorder.is_wanted())
    };
    assert_eq!(wanted(&StatusFiles::default()), (false, false, false));
    assert_eq!(wanted(&files(dir.path())), (true, false, true));
    fs::write(dir.path().join("dumps"), "a file").unwrap();
    assert_eq!(wanted(&files(dir.path())), (true, false, true));
    assert_eq!(wanted(&StatusFiles { file: Some("/".into()), dump: None }), (false, false, false));
    assert_eq!(wanted(&StatusFiles { file: None, dump: Some(dir.path().into()) }), (false, true, true));
}

/// The first dump comes at once, the next one no sooner than it may, and what is left at the end.
#[tokio::test]
async fn dumps_keep_their_distance_and_nothing_is_lost_at_the_end() {
    for (interval, while_running) in [(Duration::from_millis(1), "x@1 y@2"), (DUMP_INTERVAL * 1000, "x@1")] {
        let mut rig = Rig::new();
        let recorder = std::mem::replace(&mut rig.recorder, Recorder::new(&StatusFiles::default(), ""));
        let (sender, receiver) = watch::channel(None);
        let stop = CancellationToken::new();
        let task = tokio::spawn(recorder.run_every(interval, receiver, stop.clone()));
        let note = |pod: &str, second: i64| {
            let at = Timestamp::from_second(second).unwrap();
            sender.send_replace(Some(Arc::new((status(&[pod]), at))));
        };
        note("x", 1);
        shows(&rig, "x", "x@1").await;
        note("y", 2);
        shows(&rig, "y", while_running).await;
        note("z", 3);
        stop.cancel();
        task.await.unwrap();
        shows(&rig, "z", "x@1 y@2 z@3").await;
    }
}

/// Waits until the file names this pod and the dump is this.
async fn shows(rig: &Rig, pod: &str, dump: &str) {
    let wanted = (Some(status(&[pod]).to_json()), Some(dump.to_owned()));
    let began = Instant::now();
    loop {
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        let now = (read(rig.file()), read(rig.dump()).map(|text| show(&text)));
        if now == wanted {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{wanted:?} wanted, still {now:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
