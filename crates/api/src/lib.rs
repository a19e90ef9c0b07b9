//! The Kubernetes API of tholepin as Rust types: custom resources, keys, configuration files.
//!
//! In: JSON and YAML, as users and other programs wrote them. Out: typed values, and on request
//! CustomResourceDefinitions, checks, and `topology`'s values. Never: I/O, a Kubernetes client, or logic beyond
//! conversion, defaults and validation. Bad input ends in an error that names the field and the allowed values.
//!
//! # Modules
//!
//! | module | content | feature |
//! |---|---|---|
//! | [`nrt`] | NodeResourceTopology (`topology.node.k8s.io`, `v1alpha1` and `v1alpha2`): the NUMA zones of a node | |
//! | [`numaresources`] | NUMAResourcesOperator and NUMAResourcesScheduler (`nodetopology.openshift.io`) | |
//! | [`hardware`] | DeviceConfig (`hardware.tholepin.dev`): drivers and device plugins | `validate`, `manifests` |
//! | [`kmm`] | objects of Kernel Module Management (`kmm.sigs.x-k8s.io/v1beta1`) that tholepin uses | part: `kube` |
//! | [`keys`] | attribute, annotation and label keys of NodeResourceTopology | |
//! | [`goduration`] | durations in Go's text form | |
//! | [`features`] | the topics that test suites of the Go operator select by | |
//! | [`tls_profile`] | OpenShift's TLS profiles, by their types | |
//! | [`null`] | a helper for serde: `null` as default | |
//! | [`convert`] | NodeResourceTopology objects and pods from and to `topology`'s values | `convert` |
//! | [`crd`] | the CustomResourceDefinitions, as values and as YAML | `schema` |
//! | [`schedulerconfig`] | KubeSchedulerConfiguration files (`kubescheduler.config.k8s.io/v1`) | `scheduler-config` |
//! | [`rbac`], [`own_node`] | rules of roles; admission policies for writers of own nodes | `manifests` |
//!
//! Without features the crate depends on `serde`, `serde_json`, `thiserror` and `k8s-openapi` only. The feature
//! `schema` also derives `schemars::JsonSchema`; `full` is everything. The types implement `k8s_openapi::Resource` and
//! `k8s_openapi::Metadata`, so kube accepts them in `Api<T>`.
//!
//! # Conventions
//! - The doc comments of fields are the descriptions in the CustomResourceDefinitions. They state unit, default and
//!   allowed values.
//! - Unknown fields are ignored, and `null` stands for an absent list or map, as in Go.
//! - An absent optional field stays absent. Functions named `normalized` fill in defaults.
//! - Amounts of resources stay text (`nrt::Amount`) until [`convert`] checks them.
//!
//! # Examples
//! Read a NodeResourceTopology:
//!
//! ```
//! use api::nrt::{NodeResourceTopology, attribute};
//!
//! let object: NodeResourceTopology = serde_json::from_value(serde_json::json!({
//!     "apiVersion": "topology.node.k8s.io/v1alpha2",
//!     "kind": "NodeResourceTopology",
//!     "metadata": { "name": "worker-0" },
//!     "attributes": [{ "name": "topologyManagerPolicy", "value": "single-numa-node" }],
//!     "zones": [{
//!         "name": "node-0",
//!         "type": "Node",
//!         "resources": [{ "name": "cpu", "capacity": 16, "allocatable": "14", "available": "10" }],
//!     }],
//! }))?;
//! assert_eq!(object.zones[0].resources[0].capacity.0, "16");
//! assert_eq!(attribute::get(&object.attributes, api::keys::ATTRIBUTE_POLICY), Some("single-numa-node"));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Build a NUMAResourcesOperator for the nodes of one pool:
//!
//! ```
//! use api::goduration::GoDuration;
//! use api::numaresources::{NodeGroup, NodeGroupConfig, NumaResourcesOperator, keys};
//!
//! let mut operator = NumaResourcesOperator::default();
//! operator.metadata.name = Some(keys::OPERATOR.to_owned());
//! operator.spec.node_groups = vec![NodeGroup {
//!     pool_name: Some("worker".to_owned()),
//!     config: Some(NodeGroupConfig {
//!         info_refresh_period: Some(GoDuration::from_secs(30)),
//!         ..NodeGroupConfig::default()
//!     }),
//!     ..NodeGroup::default()
//! }];
//! let json = serde_json::to_value(&operator)?;
//! assert_eq!(json["spec"]["nodeGroups"][0]["config"]["infoRefreshPeriod"], "30s");
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! [`schedulerconfig::SchedulerConfig::parse`] shows how to read a scheduler configuration.

#![cfg_attr(
    not(feature = "full"),
    allow(rustdoc::broken_intra_doc_links, reason = "links lead to modules of other features")
)]

#[cfg(feature = "manifests")]
pub mod admission;
#[cfg(feature = "convert")]
pub mod convert;
#[cfg(feature = "schema")]
pub mod crd;
pub mod features;
pub mod goduration;
pub mod hardware;
pub mod keys;
mod kind;
pub mod kmm;
pub mod nrt;
pub mod null;
pub mod numaresources;
#[cfg(feature = "manifests")]
pub mod own_node;
#[cfg(feature = "manifests")]
pub mod rbac;
#[cfg(feature = "scheduler-config")]
pub mod schedulerconfig;
pub mod tls_profile;
