use std::collections::BTreeSet;

use deployer::platform::Platform;
use objects::Object;

use super::*;
use crate::compat::render::{self, Options};

/// The state of a cluster of which nothing is known.
pub(super) fn cluster() -> ClusterState {
    ClusterState::new(environment(Platform::Kubernetes))
}

fn environment(platform: Platform) -> Environment {
    Environment {
        platform,
        version: None,
        namespace: "numaresources".to_owned(),
        own: Default::default(),
        image: Default::default(),
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    }
}

#[test]
fn titles_of_watches_are_unique() {
    for platform in Platform::ALL {
        let environment = environment(platform);
        let titles: Vec<_> = all(platform).map(|watch| watch.title(&environment)).collect();
        let different: BTreeSet<_> = titles.iter().collect();
        assert_eq!(titles.len(), different.len(), "{titles:?}");
    }
}

/// B-05: no kind of OpenShift is watched on Kubernetes.
#[test]
fn only_kinds_of_the_platform_are_watched() {
    let kinds = |platform| {
        let openshift = all(platform).filter(|watch| watch.kind[0].contains("openshift.io"));
        openshift.map(|watch| watch.kind[2]).collect::<Vec<_>>()
    };
    let own = ["NUMAResourcesOperator", "NUMAResourcesScheduler"];
    assert_eq!(kinds(Platform::Kubernetes), own);
    let more = |kinds: &[&'static str]| [&own[..], kinds].concat();
    assert_eq!(kinds(Platform::HyperShift), more(&["SecurityContextConstraints", "APIServer"]));
    assert_eq!(
        kinds(Platform::OpenShift),
        more(&[
            "SecurityContextConstraints",
            "MachineConfig",
            "MachineConfigPool",
            "KubeletConfig",
            "APIServer"
        ])
    );
}

/// Kinds with many or large objects are never watched whole.
#[test]
fn observed_kinds_without_a_namespace_are_selected() {
    for watch in Platform::ALL.into_iter().flat_map(all) {
        let narrowed = watch.namespace != Namespace::All || watch.selection != Selection::All;
        assert!(narrowed || watch.topic != Topic::Observed, "{watch:?}");
    }
}

/// Whether a watch reports an object.
fn reports(watch: &Watch, environment: &Environment, object: &Object) -> bool {
    watch.topic == Topic::Observed
        && watch.kind() == *object.kind()
        && watch.namespace(environment) == object.namespace()
        && match watch.selection {
            Selection::All => true,
            Selection::Managed => object.label(MANAGED_BY) == Some(MANAGER),
            Selection::Label(key) => object.label(key).is_some(),
            Selection::Name(name) => object.name() == name,
        }
}

/// B-10, B-11: every object that is made is watched.
#[test]
fn objects_that_are_made_are_watched() {
    for platform in Platform::ALL {
        let image = "i:1".to_owned();
        let options = Options {
            namespace: "numaresources".to_owned(),
            exporter_image: image.clone(),
            scheduler_image: image,
            scheduler: true,
        };
        let version = "4.20.0".parse().ok();
        let objects = render::objects(platform, version, &options).unwrap();
        let environment = environment(platform);
        for object in &objects {
            assert!(all(platform).any(|watch| reports(&watch, &environment, object)), "{platform}: {object}");
        }
        assert!(objects.len() > 10, "{platform}: {}", objects.len());
    }
}
