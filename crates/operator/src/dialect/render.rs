//! What the operator would make, without a cluster.
//!
//! In: a platform, a namespace, images. Out: objects, from the same functions that the controllers use, for a world that is made up: one pool
//! called worker, one node, and the two objects with nothing in them but that. Never: an owner; in a cluster nobody has that uid.

use std::collections::BTreeMap;

use anyhow::bail;
use api::numaresources::{NodeGroup, NumaResourcesOperator, NumaResourcesScheduler, keys};
use deployer::options;
use deployer::platform::{Platform, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use objects::Object;

use crate::desired::{Controller, Desired};
use crate::reconcile::rules::Rules;
use crate::world::{Image, MachineConfigPool, Node, Place, World};

/// What can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where everything is that has a namespace.
    pub namespace: String,
    /// The exporters' image.
    pub exporter_image: String,
    /// The scheduler's image; empty: the operator's.
    pub scheduler_image: String,
    /// Whether the scheduler is among it.
    pub scheduler: bool,
}

/// The only pool.
const POOL: &str = "worker";
const CONTROL_PLANE_ROLE: &str = "node-role.kubernetes.io/control-plane";
const WORKER_ROLE: &str = "node-role.kubernetes.io/worker";

/// The objects, in the order in which they are made.
///
/// # Errors
/// When a controller would refuse to make any.
pub fn objects(
    platform: Platform,
    version: Option<Version>,
    options: &Options,
) -> anyhow::Result<Vec<Object>> {
    let world = world(platform, version, options);
    let mut objects = Vec::new();
    for controller in [Controller::NumaResourcesScheduler, Controller::NumaResourcesOperator] {
        if controller == Controller::NumaResourcesScheduler && !options.scheduler {
            continue;
        }
        let Desired::Objects(wanted) = (Rules::of(controller).desired)(&world) else {
            bail!("{}: nothing can be rendered with these images", controller.name());
        };
        for wanted in wanted {
            objects.push(disowned(&wanted.object)?);
        }
    }
    Ok(objects)
}

/// Objects as YAML documents.
///
/// # Errors
/// When one has no such form.
pub fn text(objects: &[Object]) -> anyhow::Result<String> {
    let each = objects.iter().map(|object| Ok(format!("---\n{}", runtime::yaml::write(object.body())?)));
    each.collect()
}

fn disowned(object: &Object) -> anyhow::Result<Object> {
    let mut body = object.body().clone();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    Ok(Object::from_value(object.kind().clone(), body)?)
}

/// The world that is made up.
#[must_use]
pub fn world(platform: Platform, version: Option<Version>, options: &Options) -> World {
    let image = Image { name: options.exporter_image.clone(), ..Image::default() };
    let mut world = World::new(Place {
        platform,
        version,
        namespace: options.namespace.clone(),
        own: image.clone(),
        image,
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: options::Options::default().api_server_ports,
    });
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some("00000000-0000-0000-0000-000000000000".to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    };
    let labelled = |key: &str, value: &str| LabelSelector {
        match_labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
        ..LabelSelector::default()
    };
    let mut operator =
        NumaResourcesOperator { metadata: metadata(keys::OPERATOR), ..NumaResourcesOperator::default() };
    operator.spec.node_groups = vec![NodeGroup {
        pool_name: Some(POOL.to_owned()),
        node_selector: (platform == Platform::Kubernetes).then(|| labelled("kubernetes.io/os", "linux")),
        ..NodeGroup::default()
    }];
    world.operators.insert(keys::OPERATOR.to_owned(), operator);
    let mut scheduler =
        NumaResourcesScheduler { metadata: metadata(keys::SCHEDULER), ..NumaResourcesScheduler::default() };
    scheduler.spec.image_spec.clone_from(&options.scheduler_image);
    world.schedulers.insert(keys::SCHEDULER.to_owned(), scheduler);
    let pool = MachineConfigPool {
        machine_config_selector: Some(labelled(keys::LABEL_ROLE, POOL)),
        node_selector: Some(labelled(WORKER_ROLE, "")),
        ..MachineConfigPool::default()
    };
    world.pools.insert(POOL.to_owned(), pool);
    let labels = [CONTROL_PLANE_ROLE, WORKER_ROLE].map(|role| (role.into(), "".into()));
    let node = Node { labels: labels.into(), ready: true, kubelet: None };
    world.nodes.insert("node".to_owned(), node);
    if platform.is_openshift() {
        world.tls = Some(crate::tls::intermediate().profile);
    }
    world
}
