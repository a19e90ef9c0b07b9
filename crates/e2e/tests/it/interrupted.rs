//! A run that ends before its time leaves the cluster as it was, at the latest after the next run.
//!
//! In: the rig, how many runs are ended. Out: nothing; differences fail, object by object. Never: two equal rounds.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::dump::{self, Dump};
use tokio::time::Instant;

use super::rig::Rig;

/// The run that is ended: what changes the cluster most.
const WORDS: [&str; 3] = ["e2e", "--tier-up-to=1", "--label-filter=disruptive"];
/// The run after a killed one: the shortest that cleans up.
const SHORT: [&str; 2] = ["e2e", "--focus=48685"];
/// A single round is ended within this time.
const FIRST: Duration = Duration::from_secs(14);
/// Of so many killed runs one is followed by the same run as a whole.
const REPEATED: u32 = 3;

/// Ends runs: those with an even number politely, the others at once. Another run follows a killed one. The moments of
/// several rounds are spread over the length of a run that is not ended.
pub(crate) async fn many(rig: &Rig, rounds: u32) {
    dump::settled(&rig.admin).await.unwrap();
    let before = content(rig).await;
    let length = if rounds > 1 { whole(rig, &WORDS).await } else { FIRST };
    same(rig, &before, "a run that is not ended").await;
    let (mut repeated, mut early) = (0, 0);
    for round in 0..rounds {
        let moment = length.mul_f64(share(round));
        let signal = if round % 2 == 0 { Signal::INT } else { Signal::KILL };
        let mut command = rig.command(&WORDS);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        tokio::time::sleep(moment).await;
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        println!("interrupted: round {round}, {signal:?} after {moment:?}: {ended}");
        // A run that is over by then has not been ended.
        let is_over = ended.code() == Some(0);
        early += u32::from(!is_over);
        if signal == Signal::INT {
            assert!(is_over || matches!(ended.code(), Some(1 | 2)), "{ended}");
        } else if !is_over {
            let is_repeated = rounds > 1 && (round / 2) % REPEATED == 0;
            repeated += u32::from(is_repeated);
            whole(rig, if is_repeated { &WORDS } else { &SHORT }).await;
        }
        same(rig, &before, &format!("round {round}, {signal:?} after {moment:?}")).await;
    }
    let seconds = length.as_secs();
    println!(
        "interrupted: {rounds} rounds over {seconds} s: {early} runs ended early, {repeated} repeated as a whole, the \
         cluster as before"
    );
}

/// Runs words to their end, which is a good one; how long it took.
async fn whole(rig: &Rig, words: &[&str]) -> Duration {
    let began = Instant::now();
    let ended = rig.run(words).await;
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stderr, ended.stdout);
    began.elapsed()
}

/// The cluster is as it was, object by object.
async fn same(rig: &Rig, before: &Dump, when: &str) {
    let differences = dump::difference(before, &content(rig).await);
    assert_eq!(differences, [""; 0], "after {when}");
}

/// Parts of the time that spread evenly, however many there are.
fn share(round: u32) -> f64 {
    (f64::from(round + 1) * 0.618_033_988_75).fract()
}

/// What lasts of every object. Specs replace pods, and make objects anew: what they are is compared, not when and how
/// often they were made.
pub(crate) async fn content(rig: &Rig) -> Dump {
    let mut lasting = Dump::new();
    for (name, mut object) in dump::dump(&rig.admin).await.unwrap() {
        if is_derived(&name, &object) {
            continue;
        }
        without_history(&mut object);
        match made_by_controller(&name, &object) {
            None => drop(lasting.insert(name, object)),
            Some((group, object)) => {
                let taken = (0..).find(|number| !lasting.contains_key(&format!("{group} {number}")));
                lasting.insert(format!("{group} {}", taken.unwrap()), object);
            }
        }
    }
    lasting
}

/// Whether an object follows from others, and is different each time: addresses of pods, and former revisions.
fn is_derived(name: &str, object: &Value) -> bool {
    let kind = name.split('.').next().unwrap();
    matches!(kind, "Endpoints" | "EndpointSlice" | "ControllerRevision")
        || kind == "ReplicaSet" && object["spec"]["replicas"] == 0
}

/// Removes what tells when, how often or by whom the object and its owners were made.
fn without_history(object: &mut Value) {
    let remove = |value: &mut Value, names: &[&str]| {
        let fields = value.as_object_mut();
        fields.into_iter().for_each(|fields| names.iter().for_each(|name| drop(fields.remove(*name))));
    };
    remove(&mut object["metadata"], &["managedFields"]);
    remove(
        &mut object["metadata"]["annotations"],
        &[
            api::keys::ANNOTATION_UPDATE,
            "deprecated.daemonset.template.generation",
            "deployment.kubernetes.io/revision",
        ],
    );
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        remove(owner, &["uid"]);
    }
    remove(&mut object["status"], &["observedGeneration"]);
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        remove(condition, &["lastTransitionTime", "observedGeneration"]);
    }
}

/// A pod that a controller has made: the name that it shares with its like, and what does not follow from its own name.
fn made_by_controller(name: &str, object: &Value) -> Option<(String, Value)> {
    let shared = object["metadata"]["generateName"].as_str().filter(|_| name.starts_with("Pod. "))?;
    let namespace = object["metadata"]["namespace"].as_str()?;
    let containers = object["spec"]["containers"].as_array()?.iter();
    let containers =
        containers.map(|one| json!([one["image"], one["command"], one["args"], one["resources"]]));
    let owners = &object["metadata"]["ownerReferences"];
    let object = json!({ "owners": owners, "containers": containers.collect::<Vec<_>>() });
    Some((format!("Pod. {namespace}/{shared}"), object))
}

#[test]
fn an_object_made_anew_is_the_same() {
    let table = [
        (
            json!({ "metadata": { "ownerReferences": [{ "name": "a", "uid": "1" }] } }),
            json!({ "metadata": {
            "ownerReferences": [{ "name": "a", "uid": "2" }], "managedFields": [] } }),
        ),
        (
            json!({ "status": { "conditions": [{ "type": "A", "lastTransitionTime": "1" }] } }),
            json!({ "status": { "observedGeneration": 3, "conditions": [{ "type": "A", "observedGeneration": 3 }] } }),
        ),
    ];
    for (mut one, mut other) in table {
        [&mut one, &mut other].into_iter().for_each(without_history);
        let fields =
            |value: &Value| json!([value["metadata"]["ownerReferences"], value["status"]["conditions"]]);
        assert_eq!(fields(&one), fields(&other));
    }
    let pod = |name: &str, image: &str| {
        let metadata = json!({ "generateName": "a-", "name": name, "namespace": "n" });
        made_by_controller(
            "Pod. n/x",
            &json!({ "metadata": metadata, "spec": { "containers": [{ "image": image }] } }),
        )
    };
    assert_eq!(pod("a-1", "i"), pod("a-2", "i"));
    assert_ne!(pod("a-1", "i"), pod("a-1", "j"));
}
