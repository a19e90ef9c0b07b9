use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::*;

fn typed(flavour: Flavour) -> Vec<CustomResourceDefinition> {
    definitions(flavour).into_iter().map(|value| serde_json::from_value(value).unwrap()).collect()
}

#[test]
fn every_object_belongs_to_a_definition_of_its_flavour() {
    for flavour in [Flavour::OpenShift, Flavour::HyperShift] {
        let plurals: Vec<String> = typed(flavour).into_iter().map(|crd| crd.spec.names.plural).collect();
        for instance in instances(flavour, "4.18.7") {
            let ours =
                instance.plural == "namespaces" || plurals.iter().any(|plural| plural == instance.plural);
            assert!(ours, "{flavour:?} {instance:?}");
        }
    }
}

#[test]
fn hosted_clusters_have_no_machine_configs() {
    let groups = |flavour| -> Vec<String> { typed(flavour).into_iter().map(|crd| crd.spec.group).collect() };
    let machine = "machineconfiguration.openshift.io".to_owned();
    assert!(groups(Flavour::OpenShift).contains(&machine));
    assert!(!groups(Flavour::HyperShift).contains(&machine));
}
