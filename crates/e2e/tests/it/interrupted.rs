//! A run that ends before its time leaves the cluster as it was, at the latest after the next run.
//!
//! In: the rig, how many runs are ended. Out: nothing; differences fail, object by object. Never: two equal rounds.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::dump::{self, Dump};

use super::rig::Rig;

/// The moments are within this time of a run.
const MOMENTS: Duration = Duration::from_secs(14);

/// Ends runs: those with an even number politely, the others at once. Another run follows a killed one.
pub(crate) async fn many(rig: &Rig, rounds: u32) {
    dump::settled(&rig.admin).await.unwrap();
    let before = content(rig).await;
    for round in 0..rounds {
        let moment = MOMENTS.mul_f64(share(round));
        let is_polite = round % 2 == 0;
        let mut command = rig.command(&["e2e", "--tier-up-to=1", "--label-filter=disruptive"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        tokio::time::sleep(moment).await;
        let signal = if is_polite { Signal::INT } else { Signal::KILL };
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        println!("interrupted: round {round}, {signal:?} after {moment:?}: {ended}");
        if is_polite {
            assert!(matches!(ended.code(), Some(1 | 2)), "{ended}");
        } else {
            let next = rig.run(&["e2e", "--focus=48685"]).await;
            assert_eq!(next.code, Some(0), "{}\n{}", next.stderr, next.stdout);
        }
        let differences = dump::difference(&before, &content(rig).await);
        assert_eq!(differences, [""; 0], "round {round}, {signal:?} after {moment:?}");
    }
    println!("interrupted: {rounds} runs ended, the cluster as before");
}

/// Parts of the time that spread evenly, however many there are.
fn share(round: u32) -> f64 {
    (f64::from(round + 1) * 0.618_033_988_75).fract()
}

/// What lasts of every object. Other clients' marks on fields are no content.
pub(crate) async fn content(rig: &Rig) -> Dump {
    let mut objects = dump::dump(&rig.admin).await.unwrap();
    for object in objects.values_mut() {
        object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
        // Why a report was written last: by itself now and then.
        let annotations = object["metadata"]["annotations"].as_object_mut();
        annotations.and_then(|annotations| annotations.remove(api::keys::ANNOTATION_UPDATE));
    }
    objects
}
