use serde_json::json;

use super::*;

fn old(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1alpha1", "kind": "DeviceConfig", "metadata": {"name": "acc", "namespace": "hw"}, "spec": spec})
}

/// What is asked for, what becomes of it, and words of a note.
#[test]
fn what_was_meant_is_said() {
    let table = [
        (
            json!({"driverImage": "r.example/acc", "driverVersion": "1.4.2", "nodeSelector": {"a": "b"}}),
            json!({"driverImage": "r.example/acc", "driverVersion": "1.4.2", "nodeSelector": {"a": "b"}}),
            "spec.moduleName is left out, which means acc",
        ),
        (
            json!({"driverImage": "r.example/acc", "driverVersion": "1"}),
            json!({"driverImage": "r.example/acc", "driverVersion": "1",
                   "nodeSelector": {"feature.node.kubernetes.io/pci-1da3.present": "true"}}),
            "which was meant by leaving it out",
        ),
        (
            json!({"driverImage": "r.example:5000/acc:latest", "driverVersion": "1", "nodeSelector": {"a": "b"}}),
            json!({"driverImage": "r.example:5000/acc", "driverVersion": "1", "nodeSelector": {"a": "b"}}),
            "without its tag latest",
        ),
        (
            json!({"driverImage": "r.example/acc:2.0", "driverVersion": "", "nodeSelector": {"a": "b"}}),
            json!({"driverImage": "r.example/acc", "driverVersion": "2.0", "nodeSelector": {"a": "b"}}),
            "spec.driverVersion: 2.0, which was the tag",
        ),
        (
            json!({"driverImage": "acc@sha256:01", "driverVersion": "1", "nodeSelector": {"a": "b"}, "more": 1}),
            json!({"driverImage": "acc", "driverVersion": "1", "nodeSelector": {"a": "b"}}),
            "spec.driverImage is without its digest sha256:01",
        ),
        (
            json!({"driverImage": "acc", "driverVersion": "1", "nodeSelector": {"a": "b"}, "more": 1}),
            json!({"driverImage": "acc", "driverVersion": "1", "nodeSelector": {"a": "b"}}),
            "spec.more is left out",
        ),
    ];
    for (asked, mut wanted, note) in table {
        let Converted { object, notes } = convert(&old(&asked)).unwrap();
        wanted["imagePullPolicy"] = "Always".into();
        assert_eq!(serde_json::to_value(&object.spec).unwrap(), wanted, "{asked}");
        assert!(notes.iter().any(|said| said.contains(note)), "{asked}: {notes:?}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let fine = json!({"driverImage": "acc", "driverVersion": "1"});
    let with = |field: &str, value: Value| {
        let mut spec = fine.clone();
        spec[field] = value;
        old(&spec)
    };
    let table = [
        (json!({"kind": "Pod", "apiVersion": "v1"}), "Pod of v1 is not converted"),
        (
            json!({"kind": "DeviceConfig", "apiVersion": "hardware.tholepin.dev/v1alpha1"}),
            "only DeviceConfig of example.com/v1alpha1 is",
        ),
        (json!([1]), "what has neither kind nor apiVersion is not converted"),
        (json!({"kind": "DeviceConfig"}), "DeviceConfig without apiVersion is not converted"),
        // The sample operator's own sample.
        (old(&Value::Null), "spec.driverImage is missing or empty"),
        (old(&json!({"driverImage": "acc"})), "spec.driverVersion is missing or empty"),
        (with("driverImage", json!(1)), "spec.driverImage must be a text"),
        (
            with("nodeSelector", json!({})),
            "spec.nodeSelector is empty, which the sample operator took for all nodes",
        ),
        (with("nodeSelector", json!(["a"])), "spec.nodeSelector must be a map of texts"),
        (with("nodeSelector", json!({"a": true})), "spec.nodeSelector[\"a\"] must be a text"),
        (
            with("driverVersion", json!("1+2")),
            "spec.driverVersion: driverVersion must be part of an image's tag",
        ),
        (
            json!({"apiVersion": OLD_API_VERSION, "kind": KIND, "metadata": {}, "spec": fine}),
            "metadata.name is missing",
        ),
    ];
    for (asked, words) in table {
        let error = convert(&asked).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{asked}: {error}");
    }
}

#[test]
fn what_a_cluster_added_is_left_out() {
    let mut asked = old(&json!({"driverImage": "acc", "driverVersion": "1"}));
    asked["metadata"] = json!({
        "name": "acc", "namespace": "hw", "uid": "1", "resourceVersion": "2", "generation": 3, "finalizers": ["device-config-deletion-finalizer"],
        "labels": {"a": "b"}, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "c": "d"},
    });
    asked["status"] = json!({"conditions": []});
    let Converted { object, notes } = convert(&asked).unwrap();
    let wanted = json!({"name": "acc", "namespace": "hw", "labels": {"a": "b"}, "annotations": {"c": "d"}});
    assert_eq!(serde_json::to_value(&object.metadata).unwrap(), wanted);
    assert_eq!(object.status, crate::hardware::Status::default());
    assert!(notes[0].starts_with("metadata.finalizers is left out"), "{notes:?}");
}

proptest::proptest! {
    /// Whatever the spec is: an answer, and never an object that would be refused.
    #[test]
    fn anything_has_an_answer(image in ".{0,20}", version in ".{0,9}", key in ".{0,9}") {
        if let Ok(Converted { object, .. }) =
            convert(&old(&json!({"driverImage": image, "driverVersion": version, "nodeSelector": {key: "v"}})))
        {
            proptest::prop_assert_eq!(check(&object), Vec::new());
        }
    }
}
