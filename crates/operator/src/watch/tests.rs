use std::collections::BTreeSet;

use deployer::platform::Platform;
use objects::Object;

use super::*;
use crate::dialect::render::{self, Options};

/// A world of which nothing is known.
pub(super) fn world() -> World {
    World::new(place(Platform::Kubernetes))
}

fn place(platform: Platform) -> Place {
    Place {
        platform,
        version: None,
        namespace: "numaresources".to_owned(),
        own: Default::default(),
        image: Default::default(),
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
    }
}

#[test]
fn each_watch_is_there_once() {
    for platform in Platform::ALL {
        let titles: Vec<_> = all(&place(platform)).iter().map(Watch::title).collect();
        let different: BTreeSet<_> = titles.iter().collect();
        assert_eq!(titles.len(), different.len(), "{titles:?}");
    }
}

/// B-05: nothing of OpenShift is asked for on Kubernetes.
#[test]
fn only_what_the_platform_has_is_watched() {
    let groups = |platform| {
        let all = all(&place(platform));
        all.into_iter()
            .filter(|watch| watch.kind.group.contains("openshift.io"))
            .map(|w| w.kind.kind)
            .collect::<Vec<_>>()
    };
    let own = ["NUMAResourcesOperator", "NUMAResourcesScheduler"];
    assert_eq!(groups(Platform::Kubernetes), own);
    let more = |kinds: &[&'static str]| [&own[..], kinds].concat();
    assert_eq!(groups(Platform::HyperShift), more(&["SecurityContextConstraints", "APIServer"]));
    assert_eq!(
        groups(Platform::OpenShift),
        more(&[
            "SecurityContextConstraints",
            "MachineConfig",
            "MachineConfigPool",
            "KubeletConfig",
            "APIServer"
        ])
    );
}

/// Kinds of which there are many, or large ones, are never watched whole.
#[test]
fn nothing_without_a_namespace_is_watched_whole_but_what_is_read() {
    for watch in Platform::ALL.into_iter().flat_map(|platform| all(&place(platform))) {
        let narrowed = watch.namespace.is_some() || !watch.labels.is_empty() || !watch.name.is_empty();
        assert!(narrowed || watch.fact != Fact::Live, "{watch:?}");
    }
}

/// Whether a watch tells of an object.
fn sees(watch: &Watch, object: &Object) -> bool {
    let label = watch.labels.split_once('=');
    watch.fact == Fact::Live
        && watch.kind == *object.kind()
        && watch.namespace.as_deref() == object.namespace()
        && (watch.name.is_empty() || watch.name == object.name())
        && label.is_none_or(|(key, value)| object.label(key) == Some(value))
}

/// B-10, B-11: nothing is made that is not watched.
#[test]
fn whatever_is_made_is_watched() {
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
        let watches = all(&place(platform));
        for object in &objects {
            assert!(watches.iter().any(|watch| sees(watch, object)), "{platform}: {object}");
        }
        assert!(objects.len() > 10, "{platform}: {}", objects.len());
    }
}
