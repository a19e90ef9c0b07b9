//! Pods that come and go: a plan of arrivals as plain data, and a run of it against a cluster.
//!
//! In: a seed, a rate, a load; or a list of [`Arrival`]s made elsewhere. Out: for each pod when it was created, bound and
//! running, where, or why it was lost. A plan depends on nothing but its fields, so that a simulator can be given the
//! same arrivals. Nothing here judges what it saw.

mod run;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

pub use run::{Run, run};

/// One pod to come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// When it is created, in seconds after the start.
    pub at_s: f64,
    /// Exclusive CPUs it asks for.
    pub cpus: u32,
    /// How long it runs before it is deleted, in seconds from Running on.
    pub life_s: f64,
}

/// Open arrivals: pods come at a fixed rate whatever becomes of the earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The same seed gives the same arrivals.
    pub seed: u64,
    /// How many pods.
    pub pods: usize,
    /// Pods per second.
    pub rate: f64,
    /// CPUs wanted on average, as a share of `allocatable_cpus`; decides how long pods live.
    pub load: f64,
    /// CPUs that the nodes have for pods, together.
    pub allocatable_cpus: u32,
    /// The sizes pods come in, each as likely as the others.
    pub sizes: Vec<u32>,
}

/// What became of a pod. Times are in seconds after the start of the run, as a watcher saw them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the pod.
    pub name: String,
    /// Exclusive CPUs it asked for.
    pub cpus: u32,
    /// When its creation was requested.
    pub created_s: f64,
    /// When it was bound to a node.
    pub scheduled_s: Option<f64>,
    /// When it was Running.
    pub running_s: Option<f64>,
    /// The node it was bound to.
    pub node: Option<String>,
    /// Why it never ran.
    pub lost: Option<Loss>,
}

/// Why a pod was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// `status.reason`, for instance `TopologyAffinityError`; `Deleted` if somebody else deleted it.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}

/// The sizes of the benchmark: mostly small, some that fill most of a zone of 16.
pub const SIZES: [u32; 11] = [2, 2, 4, 4, 4, 6, 6, 8, 8, 10, 12];

impl Plan {
    /// The arrivals, by time. Lives are spread evenly from 2/3 to 4/3 of the mean that gives the load.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        if self.sizes.is_empty() {
            return Vec::new();
        }
        let mut random = SplitMix(self.seed);
        let mean_size = self.sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / self.sizes.len() as f64;
        let mean_life_s = self.load * f64::from(self.allocatable_cpus) / (self.rate * mean_size);
        (0..self.pods)
            .map(|number| Arrival {
                at_s: number as f64 / self.rate,
                cpus: self.sizes[(random.next() % self.sizes.len() as u64) as usize],
                life_s: mean_life_s * (2.0 + 2.0 * random.fraction()) / 3.0,
            })
            .collect()
    }
}

impl Record {
    /// From the request to Running, in seconds.
    #[must_use]
    pub fn wait_s(&self) -> Option<f64> {
        Some(self.running_s? - self.created_s)
    }

    /// Whether nothing more will be learnt: it has run, or never will.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.running_s.is_some() || self.lost.is_some()
    }
}

/// A pod of one container of the Guaranteed class: requests are limits. It asks nothing of the cluster but its resources,
/// and ends within a second of being deleted.
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

/// Vigna's SplitMix64: small, and the same on every machine and in every release.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In `0.0..1.0`.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { seed: 1, pods: 5000, rate: 3.0, load: 0.65, allocatable_cpus: 128, sizes: SIZES.to_vec() }
    }

    #[test]
    fn arrivals_have_the_rate_and_the_load_asked_for() {
        let arrivals = plan().arrivals();
        assert_eq!(arrivals.len(), 5000);
        assert!((arrivals[4999].at_s - 4999.0 / 3.0).abs() < 1e-9);
        let work: f64 = arrivals.iter().map(|arrival| f64::from(arrival.cpus) * arrival.life_s).sum();
        let load = work / (5000.0 / 3.0) / 128.0;
        assert!((load - 0.65).abs() < 0.02, "{load}");
        let mean_s = 0.65 * 128.0 / 18.0;
        for arrival in &arrivals {
            let share = arrival.life_s / mean_s;
            assert!((2.0 / 3.0..4.0 / 3.0).contains(&share), "{arrival:?}");
            assert!(SIZES.contains(&arrival.cpus));
        }
    }

    #[test]
    fn a_seed_fixes_everything() {
        assert_eq!(plan().arrivals(), plan().arrivals());
        assert_ne!(plan().arrivals(), Plan { seed: 2, ..plan() }.arrivals());
        // The start of a plan does not depend on its length.
        assert_eq!(plan().arrivals()[..10], Plan { pods: 10, ..plan() }.arrivals());
        assert!(Plan { sizes: Vec::new(), ..plan() }.arrivals().is_empty());
    }

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
