//! Samples of users' objects.
//!
//! In: a platform. Out: a NUMAResourcesOperator and a NUMAResourcesScheduler that the operator accepts there. Never: a
//! field with its default value.

use std::collections::BTreeMap;

use api::numaresources::keys::{OPERATOR, SCHEDULER};
use api::numaresources::{NodeGroup, NumaResourcesOperator, NumaResourcesScheduler, operator, scheduler};
use deployer::manifests::meta::{cluster, selector};
use deployer::manifests::pod::CONTROL_PLANE;
use deployer::platform::Platform;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use objects::Object;

/// Exporters on workers: the pool of that name, or on Kubernetes all nodes but those of the control plane.
#[must_use]
pub fn numa_resources_operator(platform: Platform) -> NumaResourcesOperator {
    let group = match platform {
        // Each cluster has this pool.
        Platform::OpenShift => {
            let labels =
                [("pools.operator.machineconfiguration.openshift.io/worker".to_owned(), String::new())];
            NodeGroup {
                machine_config_pool_selector: Some(selector(&BTreeMap::from(labels))),
                ..NodeGroup::default()
            }
        }
        // Users choose the names of NodePools.
        Platform::HyperShift => NodeGroup { pool_name: Some("workers".to_owned()), ..NodeGroup::default() },
        Platform::Kubernetes => NodeGroup {
            pool_name: Some("worker".to_owned()),
            node_selector: Some(LabelSelector {
                match_expressions: Some(vec![LabelSelectorRequirement {
                    key: CONTROL_PLANE.to_owned(),
                    operator: "DoesNotExist".to_owned(),
                    values: None,
                }]),
                match_labels: None,
            }),
            ..NodeGroup::default()
        },
    };
    let spec = operator::Spec { node_groups: vec![group], ..operator::Spec::default() };
    NumaResourcesOperator { metadata: cluster(OPERATOR), spec, ..NumaResourcesOperator::default() }
}

/// The scheduler of the operator's own image.
#[must_use]
pub fn numa_resources_scheduler() -> NumaResourcesScheduler {
    let spec = scheduler::Spec::default();
    NumaResourcesScheduler { metadata: cluster(SCHEDULER), spec, ..NumaResourcesScheduler::default() }
}

/// Both objects.
#[must_use]
pub fn objects(platform: Platform) -> Vec<Object> {
    vec![Object::new(&numa_resources_operator(platform)), Object::new(&numa_resources_scheduler())]
}
