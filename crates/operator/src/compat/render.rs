//! The objects that the operator would make, without a cluster.
//!
//! In: a platform, a namespace, images. Out: objects, from the controllers' functions, for a made-up cluster with one
//! pool `worker`, one node, and both users' objects with little else in them. Never: an owner, whose UID no cluster
//! would have.

use anyhow::bail;
use api::numaresources::{NodeGroup, NumaResourcesOperator, NumaResourcesScheduler, keys};
use deployer::manifests::meta::{labels, selector};
use deployer::manifests::pod::CONTROL_PLANE;
use deployer::options;
use deployer::platform::{Platform, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::Object;

use crate::cluster_state::{ClusterState, Environment, Image, MachineConfigPool, Node};
use crate::desired::{Controller, Desired, DesiredObject};
use crate::numaresourcesscheduler::WORKER;
use crate::reconcile::rules::Rules;

/// The options of rendering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The namespace of namespaced objects.
    pub namespace: String,
    /// The exporters' image.
    pub exporter_image: String,
    /// The scheduler's image; empty: the operator's.
    pub scheduler_image: String,
    /// Whether the scheduler is rendered.
    pub scheduler: bool,
}

/// The only pool.
const POOL: &str = "worker";

/// The objects, in the order in which they are made.
///
/// # Errors
/// When a controller would refuse to make any.
pub fn objects(
    platform: Platform,
    version: Option<Version>,
    options: &Options,
) -> anyhow::Result<Vec<Object>> {
    let cluster = sample_cluster(platform, version, options);
    let mut objects = Vec::new();
    for controller in [Controller::NumaResourcesScheduler, Controller::NumaResourcesOperator] {
        if controller == Controller::NumaResourcesScheduler && !options.scheduler {
            continue;
        }
        let Desired::Objects(wanted) = (Rules::of(controller).desired)(&cluster) else {
            bail!("{}: nothing can be rendered with these images", controller.name());
        };
        let without_owner = |one: DesiredObject| {
            one.object.edited(|body| {
                body["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
            })
        };
        objects.extend(wanted.into_iter().map(without_owner));
    }
    Ok(objects)
}

/// The state of a made-up cluster.
#[must_use]
pub fn sample_cluster(platform: Platform, version: Option<Version>, options: &Options) -> ClusterState {
    let image = Image { name: options.exporter_image.clone(), ..Image::default() };
    let mut cluster = ClusterState::new(Environment {
        platform,
        version,
        namespace: options.namespace.clone(),
        own: image.clone(),
        image,
        exporter_image_restricted: true,
        api_server_ports: options::Options::default().api_server_ports,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        ..Environment::default()
    });
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some("00000000-0000-0000-0000-000000000000".to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    };
    let labelled = |key: &str, value: &str| selector(&labels([(key, value)]));
    let mut operator =
        NumaResourcesOperator { metadata: metadata(keys::OPERATOR), ..NumaResourcesOperator::default() };
    operator.spec.node_groups = vec![NodeGroup {
        pool_name: Some(POOL.to_owned()),
        node_selector: (platform == Platform::Kubernetes).then(|| labelled("kubernetes.io/os", "linux")),
        ..NodeGroup::default()
    }];
    cluster.operators.insert(keys::OPERATOR.to_owned(), operator);
    let mut scheduler =
        NumaResourcesScheduler { metadata: metadata(keys::SCHEDULER), ..NumaResourcesScheduler::default() };
    scheduler.spec.image_spec.clone_from(&options.scheduler_image);
    cluster.schedulers.insert(keys::SCHEDULER.to_owned(), scheduler);
    let pool = MachineConfigPool {
        machine_config_selector: Some(labelled(keys::LABEL_ROLE, POOL)),
        node_selector: Some(labelled(WORKER, "")),
        ..MachineConfigPool::default()
    };
    cluster.pools.insert(POOL.to_owned(), pool);
    let roles = [CONTROL_PLANE, WORKER].map(|role| (role.into(), "".into()));
    let node = Node { labels: roles.into(), ready: true, kubelet: None };
    cluster.nodes.insert("node".to_owned(), node);
    if platform.is_openshift() {
        cluster.tls = Some(crate::tls::intermediate().profile);
    }
    cluster
}
