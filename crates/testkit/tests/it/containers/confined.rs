//! What a container may do and what it sees.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testkit::cluster::Cluster;

use super::{create_pod, pod_until};

/// Prints who and where it is, a word a line.
const LOOK: &str = r#"
echo "ids $(id -u) $(id -g) $(id -G)"
sed -n 's/^\(CapBnd\|CapEff\|NoNewPrivs\):\t/\1 /p' /proc/self/status
for file in /x /work/x /tmp/x /sys/x /usr/x; do touch $file 2>/dev/null && echo "writes $file"; done
"#;

pub(super) async fn nothing_but_what_was_asked_for(cluster: &Cluster) {
    let check = async |name: &str, context: serde_json::Value, expected: &[&str]| {
        let container = json!({
            "name": "main", "image": "tools:1", "command": ["sh", "-c", LOOK], "securityContext": context,
            "volumeMounts": [{ "name": "work", "mountPath": "/work" }],
        });
        let pod = json!({ "supplementalGroups": [7, 8] });
        assert_eq!(said(cluster, name, json!([container]), pod).await, expected, "{name}");
    };
    let locked = json!({
        "runAsUser": 1000, "runAsGroup": 1001, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
    });
    let nothing = "0000000000000000";
    let bounded = ["CapEff 0000000000000000", "CapBnd 0000000000000000", "NoNewPrivs 1"];
    check("locked", locked, &[&["ids 1000 1001 1001 7 8"], &bounded[..], &["writes /work/x"]].concat()).await;
    let usual = "00000000a80425fb";
    let (effective, bounding) = (format!("CapEff {usual}"), format!("CapBnd {usual}"));
    let usual = [
        "ids 0 0 0 7 8",
        &effective,
        &bounding,
        "NoNewPrivs 0",
        "writes /x",
        "writes /work/x",
        "writes /tmp/x",
    ];
    check("usual", json!({}), &usual).await;
    let user = json!({ "runAsUser": 5, "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] } });
    let none = format!("CapEff {nothing}");
    let some = [
        "ids 5 0 0 7 8",
        &none,
        "CapBnd 0000000000000400",
        "NoNewPrivs 0",
        "writes /work/x",
        "writes /tmp/x",
    ];
    check("user", user, &some).await;
}

pub(super) async fn nothing_of_others(cluster: &Cluster) {
    let look = "hostname; pwd; echo $0 $1 $FOO; echo /proc/[0-9]*; ls -d /work /home /root /var/log 2>/dev/null; \
                cat /sys/devices/system/node/online; ls /sys/fs/cgroup";
    let container = json!({
        "name": "main", "image": "tools:1", "command": ["sh", "-c", look], "args": ["zero", "one"],
        "workingDir": "/usr", "env": [{ "name": "FOO", "value": "a b" }],
    });
    let said = said(cluster, "alone", json!([container]), json!({})).await;
    assert_eq!(said[..4], ["alone", "/usr", "zero one a b", "/proc/1"]);
    assert!(matches!(said[4..], [ref zones] if zones == "0-1" || zones == "0-3"), "{said:?}");
}

/// All that a pod says until it has succeeded.
async fn said(
    cluster: &Cluster,
    name: &str,
    containers: serde_json::Value,
    context: serde_json::Value,
) -> Vec<String> {
    let spec = json!({ "restartPolicy": "Never", "containers": containers, "securityContext": context, "volumes": [{ "name": "work", "emptyDir": {} }] });
    create_pod(cluster, name, spec).await;
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    pod_until(cluster, name, ended).await;
    cluster.logs("default", name, "").await.unwrap().lines().map(str::to_owned).collect()
}
