//! Reasons why the pods of a DaemonSet or Deployment do not run.
//!
//! In: the workload, its pods, warning events. Out: reasons as text. Never: a call.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ready::{condition, conditions};

/// The greatest number of reasons.
const MOST: usize = 5;

/// At most five distinct reasons: first those of the workload, then those of its pods.
pub(super) fn diagnose(workload: &Value, pods: &[Value], warnings: &[Value]) -> Vec<String> {
    let mut troubles = Vec::new();
    for condition in conditions(workload) {
        let (kind, status) = (&condition["type"], &condition["status"]);
        let stuck = kind == "Progressing" && status == "False";
        if stuck || kind == "ReplicaFailure" && status == "True" {
            troubles.push(line(&condition["reason"], &condition["message"]));
        }
    }
    let about = |object: &Value| {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        warnings.iter().filter(move |event| event["involvedObject"]["uid"] == uid.as_str())
    };
    let refused = about(workload).filter(|event| event["reason"] == "FailedCreate");
    troubles.extend(refused.map(|event| line(&event["reason"], &event["message"])));
    for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let reason = of_pod(pod).or_else(|| {
            let waiting = pod["status"]["phase"] == "Pending";
            let last = about(pod).rfind(|_| waiting);
            last.map(|event| line(&event["reason"], &event["message"]))
        });
        troubles.extend(reason.map(|reason| format!("pod {name}: {reason}")));
    }
    let mut seen = BTreeSet::new();
    troubles.retain(|trouble| seen.insert(trouble.clone()));
    troubles.truncate(MOST);
    troubles
}

/// The reason in the pod's own status, if there is one.
fn of_pod(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    if status["phase"] == "Failed" {
        return Some(line(&status["reason"], &status["message"]));
    }
    if let Some(condition) = condition(pod, "PodScheduled", "False") {
        return Some(line(&condition["reason"], &condition["message"]));
    }
    ["initContainerStatuses", "containerStatuses"]
        .iter()
        .flat_map(|field| status[*field].as_array().map(Vec::as_slice).unwrap_or_default())
        .find_map(of_container)
}

fn of_container(status: &Value) -> Option<String> {
    let name = status["name"].as_str().unwrap_or_default();
    let waiting = &status["state"]["waiting"];
    let reason = waiting["reason"].as_str().unwrap_or_default();
    // These two reasons are normal before a container runs.
    if !reason.is_empty() && !matches!(reason, "ContainerCreating" | "PodInitializing") {
        let mut text = format!("container {name}: {}", line(&waiting["reason"], &waiting["message"]));
        let last = &status["lastState"]["terminated"];
        if let Some(code) = last["exitCode"].as_i64() {
            text = format!("{text} (last exit code {code})");
        }
        return Some(text);
    }
    let ended = &status["state"]["terminated"];
    let code = ended["exitCode"].as_i64().filter(|code| *code != 0)?;
    Some(format!("container {name}: exited with code {code}"))
}

/// `Reason: message` in one line of at most 400 characters.
fn line(reason: &Value, message: &Value) -> String {
    let [reason, message] = [reason, message].map(|text| text.as_str().unwrap_or_default().trim());
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = match (reason, message.as_str()) {
        ("", "") => "no reason given".to_owned(),
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    };
    if text.chars().count() <= 400 { text } else { text.chars().take(397).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Value {
        json!({ "metadata": { "name": "p", "uid": "pod" }, "status": status })
    }

    fn event(uid: &str, reason: &str) -> Value {
        json!({ "involvedObject": { "uid": uid }, "reason": reason, "message": "because" })
    }

    #[test]
    fn the_status_of_a_pod_has_the_reason() {
        let waiting = |reason: &str| {
            pod(json!({ "phase": "Pending", "containerStatuses": [
                { "name": "c", "state": { "waiting": { "reason": reason, "message": "no such\nthing" } } },
            ] }))
        };
        let table = [
            (waiting("ImagePullBackOff"), Some("pod p: container c: ImagePullBackOff: no such thing")),
            (waiting("ContainerCreating"), None),
            (
                pod(json!({ "phase": "Running", "containerStatuses": [{
                    "name": "c",
                    "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } },
                    "lastState": { "terminated": { "exitCode": 7 } },
                }] })),
                Some("pod p: container c: CrashLoopBackOff: back-off (last exit code 7)"),
            ),
            (
                pod(json!({ "phase": "Running", "containerStatuses": [
                    { "name": "c", "state": { "terminated": { "exitCode": 3 } } },
                ] })),
                Some("pod p: container c: exited with code 3"),
            ),
            (
                pod(json!({ "phase": "Pending", "conditions": [
                    { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1" },
                ] })),
                Some("pod p: Unschedulable: 0/1"),
            ),
            (
                pod(json!({ "phase": "Failed", "reason": "TopologyAffinityError" })),
                Some("pod p: TopologyAffinityError"),
            ),
            (pod(json!({ "phase": "Failed" })), Some("pod p: no reason given")),
            (pod(json!({ "phase": "Running" })), None),
        ];
        for (pod, want) in table {
            let got = diagnose(&json!({}), std::slice::from_ref(&pod), &[]);
            assert_eq!(got, Vec::from_iter(want.map(str::to_owned)), "{pod}");
        }
        let mut leaving = waiting("ImagePullBackOff");
        leaving["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(diagnose(&json!({}), &[leaving], &[]), [""; 0], "deleted pods are ignored");
    }

    #[test]
    fn events_explain_pods_without_a_reason() {
        let workload = json!({ "metadata": { "uid": "set" } });
        let warnings = [
            event("pod", "FailedMount"),
            event("set", "FailedCreate"),
            event("set", "Other"),
            event("x", "X"),
        ];
        let pending = [pod(json!({ "phase": "Pending" }))];
        let want = ["FailedCreate: because", "pod p: FailedMount: because"];
        assert_eq!(diagnose(&workload, &pending, &warnings), want);
        let running = [pod(json!({ "phase": "Running" }))];
        assert_eq!(diagnose(&workload, &running, &warnings), ["FailedCreate: because"]);
    }

    #[test]
    fn each_condition_of_the_workload_is_one_reason() {
        let workload = json!({ "status": { "conditions": [
            { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "forbidden" },
            { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "forbidden" },
            { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "slow" },
            { "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "few" },
        ] } });
        assert_eq!(
            diagnose(&workload, &[], &[]),
            ["FailedCreate: forbidden", "ProgressDeadlineExceeded: slow"]
        );
        let pods: Vec<Value> = (0..20)
            .map(|number| {
                let mut pod = pod(json!({ "phase": "Failed" }));
                pod["metadata"]["name"] = number.to_string().into();
                pod
            })
            .collect();
        assert_eq!(diagnose(&workload, &pods, &[]).len(), MOST);
    }
}
