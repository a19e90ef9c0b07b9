//! Pods that come and go, against a cluster.
//!
//! In: a list of [`Arrival`]s (the simulator's workloads make them). Out: for each pod when it was created, bound and
//! running, where, or why it was lost. Nothing here judges what it saw.

mod run;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

pub use run::{Run, run};

/// The resource of the devices that pods of a load ask for.
pub const DEVICE: &str = "testkit.example/device";

/// One pod to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// When it is created, in seconds after the start.
    pub at_s: f64,
    /// Exclusive CPUs it asks for.
    pub cpus: u32,
    /// Exclusive CPUs of an init container; none: there is none.
    #[serde(default)]
    pub init_cpus: u32,
    /// Exclusive CPUs of a sidecar: an init container that is restarted always; none: there is none.
    #[serde(default)]
    pub sidecar_cpus: u32,
    /// Huge pages of 2 MiB.
    #[serde(default)]
    pub huge_pages: u32,
    /// Devices of the resource [`DEVICE`].
    #[serde(default)]
    pub devices: u32,
    /// How long it runs before it is deleted, in seconds from Running on.
    pub life_s: f64,
}

/// What became of a pod. Times are in seconds after the start of the run, as a watcher saw them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the pod.
    pub name: String,
    /// Its `schedulerName`.
    pub scheduler: String,
    /// Exclusive CPUs it asked for.
    pub cpus: u32,
    /// When its creation was requested.
    pub created_s: f64,
    /// When it was bound to a node.
    pub scheduled_s: Option<f64>,
    /// When it was Running.
    pub running_s: Option<f64>,
    /// When it had ended, or was gone.
    pub ended_s: Option<f64>,
    /// The node it was bound to.
    pub node: Option<String>,
    /// Why it never ran.
    pub lost: Option<Loss>,
}

/// Why a pod was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// `status.reason`, for instance `TopologyAffinityError`; `Deleted` if another client deleted it.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}

impl Record {
    /// From the request to Running, in seconds.
    #[must_use]
    pub fn wait_s(&self) -> Option<f64> {
        Some(self.running_s? - self.created_s)
    }

    /// How long it kept its place, from its binding to its end, in seconds; `None`: it had not ended when all pods had
    /// run.
    #[must_use]
    pub fn held_s(&self) -> Option<f64> {
        Some(self.ended_s? - self.scheduled_s?)
    }

    /// Whether nothing more will be learnt: it has run, or never will.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.running_s.is_some() || self.lost.is_some()
    }
}

/// A pod of one container of the Guaranteed class: requests are limits. It asks nothing of the cluster but its
/// resources, and ends within a second of being deleted.
#[must_use]
pub fn guaranteed_pod<'a>(
    name: &str,
    scheduler: &str,
    resources: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Pod {
    let limits: BTreeMap<String, Quantity> = resources
        .into_iter()
        .map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned())))
        .collect();
    let container = Container {
        name: "main".to_owned(),
        image: Some("pause".to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(limits.clone()),
            limits: Some(limits),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(PodSpec {
            containers: vec![container],
            scheduler_name: Some(scheduler.to_owned()),
            dns_policy: Some("Default".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            restart_policy: Some("Always".to_owned()),
            termination_grace_period_seconds: Some(1),
            ..PodSpec::default()
        }),
        status: None,
    }
}

impl Arrival {
    /// The pod, of the Guaranteed class.
    fn pod(&self, name: &str, scheduler: &str, memory: &str) -> Pod {
        let (cpus, devices) = (self.cpus.to_string(), self.devices.to_string());
        let huge_pages = format!("{}Mi", 2 * self.huge_pages);
        let mut resources = vec![("cpu", &*cpus), ("memory", memory)];
        resources.extend((self.huge_pages > 0).then_some(("hugepages-2Mi", &*huge_pages)));
        resources.extend((self.devices > 0).then_some((DEVICE, &*devices)));
        let mut pod = guaranteed_pod(name, scheduler, resources);
        let before = |kind: &str, cpus: u32| -> Vec<Container> {
            let cpus = cpus.to_string();
            let other = guaranteed_pod(name, scheduler, [("cpu", &*cpus), ("memory", memory)]);
            let containers = other.spec.map(|spec| spec.containers).unwrap_or_default();
            containers.into_iter().map(|it| Container { name: kind.to_owned(), ..it }).collect()
        };
        let mut init = Vec::new();
        if self.init_cpus > 0 {
            let ends = |it| Container { command: Some(vec!["true".to_owned()]), ..it };
            init.extend(before("init", self.init_cpus).into_iter().map(ends));
        }
        if self.sidecar_cpus > 0 {
            let stays = |it| Container { restart_policy: Some("Always".to_owned()), ..it };
            init.extend(before("sidecar", self.sidecar_cpus).into_iter().map(stays));
        }
        if let Some(spec) = pod.spec.as_mut().filter(|_| !init.is_empty()) {
            spec.init_containers = Some(init);
        }
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_guaranteed() {
        let pod = guaranteed_pod("a", "some-scheduler", [("cpu", "4"), ("memory", "64Mi")]);
        let spec = pod.spec.unwrap();
        assert_eq!(spec.scheduler_name.as_deref(), Some("some-scheduler"));
        let resources = spec.containers[0].resources.as_ref().unwrap();
        assert_eq!(resources.requests, resources.limits);
        assert_eq!(resources.limits.as_ref().unwrap()["cpu"], Quantity("4".to_owned()));
    }
}
