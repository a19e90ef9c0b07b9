//! All objects of each kind of cluster as files, so that a change of one is seen and read. `UPDATE=1` writes them anew.

use super::*;

#[track_caller]
fn compare(file: &str, wanted: &str) {
    testkit::golden::compare(env!("CARGO_MANIFEST_DIR"), file, wanted);
}

/// Two groups: one as usual, one with everything that can be chosen.
fn everything(platform: Platform) -> ClusterState {
    let mut cluster = cluster(platform);
    cluster.pools.entry("infra".to_owned()).and_modify(|pool| {
        pool.sources.insert("51-numaresourcesoperator-infra".to_owned());
    });
    let spec = json!({
        "logLevel": "Debug",
        "podExcludes": [{ "namespace": "kube-system", "name": "*" }],
        "nodeGroups": [
            { "poolName": "worker" },
            {
                "poolName": "infra",
                "annotations": { POLICY: "custom" },
                "config": {
                    "podsFingerprinting": "Disabled",
                    "infoRefreshMode": "Periodic",
                    "infoRefreshPeriod": "30s",
                    "infoRefreshPause": "Enabled",
                    "tolerations": [{ "operator": "Exists" }],
                },
            },
        ],
    });
    ask(&mut cluster, &if platform == Platform::Kubernetes { with_node_selectors(spec) } else { spec });
    cluster
}

fn text(cluster: &ClusterState) -> String {
    let document = |one: &crate::desired::DesiredObject| {
        // It has files of its own.
        if one.object.kind().kind == "CustomResourceDefinition" {
            return String::new();
        }
        format!("---\n{}", runtime::yaml::write(one.object.body()).unwrap())
    };
    wanted(cluster).iter().map(document).collect()
}

#[test]
fn every_cluster_is_as_in_its_file() {
    for platform in PLATFORMS {
        let name = platform.to_string().to_lowercase();
        compare(&format!("numaresourcesoperator-{name}.yaml"), &text(&everything(platform)));
    }
}

/// The Go exporter in our place.
#[test]
fn a_custom_image_is_as_in_its_file() {
    let mut cluster = everything(Platform::OpenShift);
    cluster.environment.exporter_image_restricted = false;
    cluster.operators.get_mut(OPERATOR).unwrap().spec.image_spec = "example.com/rte:1".to_owned();
    compare("numaresourcesoperator-openshift-custom-image.yaml", &text(&cluster));
}

/// nfd-topology-updater in the exporter's place.
#[test]
fn nfd_is_as_in_its_file() {
    for platform in [Platform::Kubernetes, Platform::OpenShift] {
        let mut cluster = everything(platform);
        let spec = &mut cluster.operators.get_mut(OPERATOR).unwrap().spec;
        (spec.updater_type, spec.pod_excludes) = (Some(UpdaterType::Nfd), Vec::new());
        spec.node_groups.iter_mut().for_each(|group| group.annotations.clear());
        let name = platform.to_string().to_lowercase();
        compare(&format!("numaresourcesoperator-{name}-nfd.yaml"), &text(&cluster));
    }
}
