use api::hardware::{DeviceConfig, check};
use deployer::platform::Platform;

use testkit::manifests::check_references;

use super::*;

fn on(platform: Platform) -> Options {
    let mut options = options();
    options.common.platform = platform;
    options.common.monitoring = true;
    options
}

fn of_kind<'o>(objects: &'o [Object], kind: &str) -> Vec<&'o Object> {
    objects.iter().filter(|object| object.kind().kind == kind).collect()
}

/// Each object comes after the objects that it refers to.
#[test]
fn references_point_to_earlier_objects() {
    for platform in Platform::ALL {
        let objects = objects(&on(platform));
        check_references(objects.iter().map(Object::body), NAMESPACE, &[]);
        let template = &of_kind(&objects, "Deployment")[0].body()["spec"]["template"];
        let service = of_kind(&objects, "Service")[0];
        let monitor = of_kind(&objects, "ServiceMonitor")[0].body();
        assert_eq!(monitor["spec"]["selector"]["matchLabels"], service.body()["metadata"]["labels"]);
        assert_eq!(monitor["spec"]["endpoints"][0]["port"], service.body()["spec"]["ports"][0]["name"]);
        assert_eq!(
            template["spec"]["containers"][0]["args"],
            serde_json::json!(["operator", "--controllers=deviceconfig"])
        );
        assert_eq!(
            of_kind(&objects, "Namespace")[0].body()["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            "restricted"
        );
    }
}

/// Roles for namespaces do not include DeviceConfigs.
#[test]
fn editors_of_namespaces_cannot_load_drivers() {
    let [editor, viewer] = users::roles();
    assert_eq!(editor.metadata.labels, None);
    let labels = viewer.metadata.labels.unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["rbac.authorization.k8s.io/aggregate-to-view"]);
    assert!(viewer.rules.unwrap().iter().all(|rule| !rule.verbs.iter().any(|verb| verb == "patch")));
}

#[test]
fn the_sample_is_valid() {
    let objects = samples::objects();
    let read: DeviceConfig = serde_json::from_value(objects[1].body().clone()).unwrap();
    assert_eq!(read, samples::device_config());
    assert_eq!(check(&read), Vec::new());
    assert_eq!(read.metadata.namespace.as_deref(), Some(objects[0].name()));
    assert_eq!(read.spec.kernel_module().as_deref(), Some("tholepin_sample"));
    let config = read.spec.device_plugin.unwrap().config.unwrap();
    assert_eq!(config["resources"][0]["name"], "tholepin.dev/sample");
}
