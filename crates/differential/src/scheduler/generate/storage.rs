//! Storage: classes, volumes, claims, and the volumes of pods.

use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::case::Case;
use crate::scheduler::generate::NAMESPACES;
use crate::scheduler::generate::nodes::{HOST, ZONE};

/// A CSI driver.
const DRIVER: &str = "csi.example";
/// The driver that serves the volumes of [`EBS`].
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// An in-tree plugin.
const EBS: &str = "kubernetes.io/aws-ebs";
/// Another one, whose driver has its own label of a zone.
const PD: &str = "kubernetes.io/gce-pd";
/// An old label of a zone.
const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// Classes: name, provisioner, and whether claims wait for a pod.
const CLASSES: [(&str, &str, bool); 4] = [
    ("provisioned", DRIVER, true),
    ("local", "kubernetes.io/no-provisioner", true),
    ("ebs", EBS, true),
    ("immediate", DRIVER, false),
];
/// Sizes of volumes, and of requests.
const SIZES: [&str; 5] = ["1Gi", "1500Mi", "2Gi", "3Gi", "5G"];
/// Names of claims in each namespace.
const CLAIMS: u64 = 6;
/// Names of PersistentVolumes.
const VOLUMES: u64 = 8;

/// Adds volumes to a case, and lets pods use them.
pub(super) fn add(dice: &mut Dice, case: &mut Case) {
    let storage = &mut case.storage;
    for (name, provisioner, waits) in CLASSES {
        if dice.percent(93) {
            storage.storage_classes.push(class(dice, name, provisioner, waits));
        }
    }
    storage.persistent_volumes = (0..VOLUMES).filter_map(|at| volume(dice, at)).collect();
    for namespace in NAMESPACES {
        for at in 0..CLAIMS {
            if dice.percent(97) {
                storage.persistent_volume_claims.push(claim(dice, namespace, &format!("c{at}")));
            }
        }
    }
    let limited = dice.percent(55);
    for node in &case.nodes {
        if dice.percent(85) {
            storage.csi_nodes.push(csi_node(dice, &node["metadata"]["name"], limited));
        }
    }
    if dice.percent(70) {
        let tracks = dice.percent(60);
        storage
            .csi_drivers
            .push(json!({ "metadata": { "name": DRIVER }, "spec": { "storageCapacity": tracks } }));
    }
    storage.csi_storage_capacities = (0..dice.between(0, 4)).map(|at| capacity(dice, at)).collect();
    storage.volume_attachments =
        (0..dice.between(0, 5)).map(|at| attachment(dice, at, case.nodes.len() as u64)).collect();
    for pod in &mut case.pods {
        if dice.percent(30) {
            let claims = use_volumes(dice, pod, true);
            case.storage.persistent_volume_claims.extend(claims);
        }
    }
    let claims = use_volumes(dice, &mut case.pod, false);
    case.storage.persistent_volume_claims.extend(claims);
    disable(dice, &mut case.configuration);
}

/// A profile without one of the plugins now and then.
fn disable(dice: &mut Dice, configuration: &mut Value) {
    let profile = &mut configuration["profiles"][0]["plugins"];
    if dice.percent(15) {
        let plugins = ["VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"];
        let disabled = json!({ "name": dice.pick(&plugins) });
        match profile["filter"]["disabled"].as_array_mut() {
            Some(list) => list.push(disabled),
            None => profile["filter"] = json!({ "disabled": [disabled] }),
        }
    } else if dice.percent(10) {
        let plugin = dice.pick(&["VolumeRestrictions", "NodeVolumeLimits", "VolumeZone"]);
        profile["multiPoint"] = json!({ "disabled": [{ "name": plugin }] });
    }
}

fn class(dice: &mut Dice, name: &str, provisioner: &str, waits: bool) -> Value {
    let mode = if waits { "WaitForFirstConsumer" } else { "Immediate" };
    let mut class = json!({
        "metadata": { "name": name }, "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Delete",
    });
    if dice.percent(35) {
        let zones = [dice.pick(&["a", "b", "c"]), dice.pick(&["a", "b"])];
        let expressions = json!([{ "key": ZONE, "values": zones }]);
        class["allowedTopologies"] = json!([{ "matchLabelExpressions": expressions }]);
    }
    class
}

fn volume(dice: &mut Dice, at: u64) -> Option<Value> {
    if dice.percent(6) {
        return None;
    }
    let size = dice.pick(&SIZES);
    let mut labels = json!({});
    if dice.percent(25) {
        labels["tier"] = dice.pick(&["fast", "slow"]).into();
    }
    let mut spec = json!({
        "capacity": { "storage": size }, "storageClassName": CLASSES[dice.between(0, 2) as usize].0,
        "accessModes": modes(dice), "volumeMode": dice.pick(&["Filesystem", "Filesystem", "Filesystem", "Block"]),
        "persistentVolumeReclaimPolicy": "Retain",
    });
    let zones = match dice.between(0, 4) {
        0 | 1 => {
            spec["csi"] = json!({ "driver": DRIVER, "volumeHandle": format!("h{at}") });
            "a__b"
        }
        2 => {
            spec["awsElasticBlockStore"] = json!({ "volumeID": format!("aws://a/vol-{at}") });
            "b__c"
        }
        3 => {
            spec["gcePersistentDisk"] = json!({ "pdName": format!("disk-{at}") });
            "b"
        }
        _ => {
            spec["local"] = json!({ "path": "/mnt" });
            " a__c "
        }
    };
    if dice.percent(65) {
        labels[dice.pick(&[ZONE, ZONE, OLD_ZONE])] = dice.pick(&["a", zones, zones, zones]).into();
    }
    if dice.percent(50) {
        let expression = match dice.between(0, 3) {
            0 => json!({ "key": HOST, "operator": "In", "values": [dice.pick(&["n0", "n1", "n2"])] }),
            1 => json!({ "key": "disk", "operator": dice.pick(&["Exists", "DoesNotExist"]) }),
            _ => {
                let (key, zone) = (dice.pick(&[ZONE, ZONE, OLD_ZONE]), dice.pick(&["a", "b", "c"]));
                json!({ "key": key, "operator": "In", "values": [zone, "a"] })
            }
        };
        spec["nodeAffinity"] =
            json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [expression] }] } });
    }
    if dice.percent(20) {
        let (namespace, name) = (dice.pick(&NAMESPACES), format!("c{}", dice.between(0, CLAIMS - 1)));
        spec["claimRef"] = json!({ "namespace": namespace, "name": name });
        if dice.percent(50) {
            spec["claimRef"]["uid"] = format!("{namespace}-{name}").into();
        }
    }
    if dice.percent(5) {
        spec["volumeAttributesClassName"] = "gold".into();
    }
    let phase = dice.pick(&["Available", "Available", "Available", "Available", "Released"]);
    let mut meta = json!({ "name": format!("v{at}"), "labels": labels, "resourceVersion": "1" });
    if dice.percent(4) {
        meta["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    }
    Some(json!({ "metadata": meta, "spec": spec, "status": { "phase": phase } }))
}

fn modes(dice: &mut Dice) -> Value {
    dice.pick(&[
        &["ReadWriteOnce"][..],
        &["ReadWriteOnce", "ReadOnlyMany"],
        &["ReadWriteOnce", "ReadWriteOncePod"],
        &["ReadWriteMany", "ReadWriteOnce"],
    ])
    .into()
}

fn claim(dice: &mut Dice, namespace: &str, name: &str) -> Value {
    let class = CLASSES[dice.pick(&[0, 0, 0, 1, 1, 1, 2, 2, 3])].0;
    let mut spec = json!({
        "storageClassName": class, "resources": { "requests": { "storage": dice.pick(&SIZES) } },
        "accessModes": [if dice.percent(30) { "ReadWriteOncePod" } else { "ReadWriteOnce" }],
        "volumeMode": if dice.percent(6) { "Block" } else { "Filesystem" },
    });
    let mut meta = json!({
        "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "resourceVersion": "1",
    });
    let mut annotations = json!({});
    let mut status = json!({ "phase": "Pending" });
    if dice.percent(if class == "immediate" { 85 } else { 50 }) {
        spec["volumeName"] = format!("v{}", dice.between(0, VOLUMES - 1)).into();
        if dice.percent(97) {
            annotations["pv.kubernetes.io/bind-completed"] = "yes".into();
        }
        status["phase"] = if dice.percent(97) { "Bound" } else { "Lost" }.into();
    } else if dice.percent(12) {
        annotations["volume.kubernetes.io/selected-node"] = format!("n{}", dice.between(0, 4)).into();
    }
    if dice.percent(8) {
        spec["selector"] = json!({ "matchLabels": { "tier": dice.pick(&["fast", "slow"]) } });
    }
    if dice.percent(4) {
        spec["volumeAttributesClassName"] = "gold".into();
    }
    if dice.percent(2) {
        meta["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    }
    if dice.percent(2) {
        annotations["volume.beta.kubernetes.io/storage-class"] = dice.pick(&["local", "missing"]).into();
    }
    meta["annotations"] = annotations;
    json!({ "metadata": meta, "spec": spec, "status": status })
}

fn csi_node(dice: &mut Dice, name: &Value, limited: bool) -> Value {
    let mut drivers = Vec::new();
    for driver in [DRIVER, EBS_DRIVER, "pd.csi.storage.gke.io"] {
        if dice.percent(75) {
            let mut it = json!({ "name": driver, "nodeID": name, "topologyKeys": [] });
            if limited && dice.percent(80) {
                it["allocatable"] = json!({ "count": dice.between(0, 3) });
            }
            drivers.push(it);
        }
    }
    let mut node = json!({ "metadata": { "name": name }, "spec": { "drivers": drivers } });
    if dice.percent(70) {
        let plugins = dice.pick(&[EBS, PD, "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"]);
        node["metadata"]["annotations"] = json!({ "storage.alpha.kubernetes.io/migrated-plugins": plugins });
    }
    node
}

fn capacity(dice: &mut Dice, at: u64) -> Value {
    let mut capacity = json!({
        "metadata": { "namespace": "default", "name": format!("k{at}") },
        "storageClassName": dice.pick(&["provisioned", "provisioned", "ebs"]),
    });
    if dice.percent(85) {
        capacity["capacity"] = dice.pick(&["1Gi", "2Gi", "4Gi", "10Gi"]).into();
    }
    if dice.percent(25) {
        capacity["maximumVolumeSize"] = dice.pick(&["1Gi", "2Gi"]).into();
    }
    if dice.percent(90) {
        capacity["nodeTopology"] = match dice.between(0, 3) {
            0 => json!({}),
            _ => json!({ "matchLabels": { ZONE: dice.pick(&["a", "b", "c"]) } }),
        };
    }
    capacity
}

fn attachment(dice: &mut Dice, at: u64, nodes: u64) -> Value {
    json!({
        "metadata": { "name": format!("a{at}") },
        "spec": {
            "attacher": DRIVER, "nodeName": format!("n{}", dice.between(0, nodes - 1)),
            "source": { "persistentVolumeName": format!("v{}", dice.between(0, VOLUMES - 1)) },
        },
        "status": { "attached": true },
    })
}

/// Gives a pod volumes. Returns the claims of its ephemeral ones.
fn use_volumes(dice: &mut Dice, pod: &mut Value, is_placed: bool) -> Vec<Value> {
    let (mut volumes, mut claims) = (Vec::new(), Vec::new());
    for at in 0..dice.pick(&[1, 1, 1, 1, 2, 3]) {
        let mut volume = json!({ "name": format!("d{at}") });
        match dice.between(0, 9) {
            0 => {
                let template = json!({ "spec": { "accessModes": ["ReadWriteOnce"] } });
                volume["ephemeral"] = json!({ "volumeClaimTemplate": template });
                claims.extend(ephemeral_claim(dice, pod, &format!("d{at}"), is_placed));
            }
            1 | 2 => disk(dice, &mut volume),
            3 => volume["emptyDir"] = json!({}),
            _ => {
                let name = format!("c{}", dice.between(0, CLAIMS - 1));
                volume["persistentVolumeClaim"] = json!({ "claimName": name });
            }
        }
        volumes.push(volume);
    }
    pod["spec"]["volumes"] = volumes.into();
    claims
}

fn disk(dice: &mut Dice, volume: &mut Value) {
    let (id, read_only) = (dice.between(0, 1), dice.percent(50));
    match dice.between(0, 5) {
        0 => {
            let id = dice.pick(&["vol-0", "aws://a/vol-1"]);
            volume["awsElasticBlockStore"] = json!({ "volumeID": id, "readOnly": read_only });
        }
        1 => {
            volume["gcePersistentDisk"] = json!({ "pdName": format!("disk-{id}"), "readOnly": read_only });
        }
        2 => {
            volume["iscsi"] =
                json!({ "targetPortal": "t", "iqn": format!("iqn-{id}"), "lun": 0, "readOnly": read_only });
        }
        3 => {
            volume["rbd"] = json!({
                "monitors": [dice.pick(&["m0", "m1"]), "m2"], "pool": "rbd", "image": format!("i{id}"),
                "readOnly": read_only,
            });
        }
        4 => {
            volume["azureDisk"] = json!({ "diskName": "d", "diskURI": format!("u{id}"), "kind": "Managed" });
        }
        _ => volume["cinder"] = json!({ "volumeID": format!("c{id}") }),
    }
}

/// The claim that is made for an ephemeral volume; of a pod that waits sometimes none yet, or one of another owner.
fn ephemeral_claim(dice: &mut Dice, pod: &Value, volume: &str, is_placed: bool) -> Option<Value> {
    let meta = &pod["metadata"];
    let (Some(namespace), Some(name)) = (meta["namespace"].as_str(), meta["name"].as_str()) else {
        return None;
    };
    if !is_placed && dice.percent(8) {
        return None;
    }
    let mut claim = claim(dice, namespace, &format!("{name}-{volume}"));
    let uid = if !is_placed && dice.percent(8) { json!("other") } else { meta["uid"].clone() };
    claim["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true }]);
    Some(claim)
}
