//! The vectors, as data: for the specs, for the model of the kubelet, and for the scheduler's filter.
//!
//! In: nothing. Out: the vectors; each as a pod and as nodes' zones. Never: a vector for one of the three alone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};

use crate::amounts::{Amounts, Scale};
use crate::devices::SAMPLES;
use crate::pods::{Images, PodPlan};

/// What must become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It runs on the target.
    Target,
    /// It waits, since no zone holds it.
    CannotAlign,
    /// It runs on the target where reports tell that the CPU manager is static: for a whole pod such a kubelet aligns
    /// containers with whole CPUs only (kubelet 1.36 `cpumanager.podGuaranteedCPUs`). Else it waits like
    /// [`Expect::CannotAlign`]: reports do not tell enough.
    WholeCpusOnly,
    /// It waits, since no node has CPUs enough in all.
    InsufficientCpu,
}

/// What is left in the zones of two kinds of nodes, and a pod. Amounts as [`crate::amounts::Amounts::parse`] reads
/// them.
#[derive(Debug)]
pub struct Vector {
    /// The id of the spec.
    pub id: &'static str,
    /// Its tier.
    pub tier: u8,
    /// The scope of the nodes.
    pub scope: Scope,
    /// The labels of the spec.
    pub labels: &'static [&'static str],
    /// The pod in a few words.
    pub about: &'static str,
    /// Its init containers.
    pub init: &'static [&'static str],
    /// Its containers; requests are limits.
    pub app: &'static [&'static str],
    /// Zones of all nodes but the target.
    pub others: [&'static str; 2],
    /// Zones of the target.
    pub target: [&'static str; 2],
    /// What must become of it.
    pub expect: Expect,
}

impl Vector {
    /// Whether any amount is of this resource.
    #[must_use]
    pub fn mentions(&self, resource: &str) -> bool {
        let all = self.init.iter().chain(self.app).chain(&self.others).chain(&self.target);
        all.flat_map(|text| text.split_whitespace()).any(|word| word.split('=').next() == Some(resource))
    }
}

/// What zones have that a vector does not mention.
const FULL: [&str; 2] = [
    "20 40Gi hugepages-2Mi=1Gi hugepages-1Gi=4Gi dev1=8 dev2=8 dev3=4",
    "20 40Gi hugepages-2Mi=1Gi hugepages-1Gi=4Gi dev1=8 dev2=8 dev3=0",
];

impl Vector {
    /// The pod.
    ///
    /// # Errors
    /// The word that is no amount.
    pub fn pod(&self) -> Result<Pod, String> {
        let images = Images { tholepin: "t".to_owned(), pause: None, pull_policy: "Never".to_owned() };
        let mut plan = PodPlan::new("p", "s", &images, BTreeMap::new());
        for text in self.init {
            plan = plan.init(&read(text)?);
        }
        for text in self.app {
            plan = plan.guaranteed(&read(text)?);
        }
        Ok(plan.pod())
    }

    /// A node with so much left in its zones: `self.target`, or `self.others`.
    ///
    /// # Errors
    /// The word that is no amount.
    pub fn node(&self, left: &[&str; 2], cpu_manager: Manager) -> Result<NodeTopology, String> {
        let zones = FULL.iter().zip(left).zip(0..).map(|((full, left), id)| zone(id, full, left));
        let rules =
            Rules { policy: Policy::SingleNumaNode, scope: self.scope, cpu_manager, ..Rules::default() };
        Ok(NodeTopology {
            rules,
            zones: zones.collect::<Result<_, _>>()?,
            threads_per_core: Some(1),
            ..NodeTopology::default()
        })
    }

    /// Whether zones of the target hold the pod. That a node lacks CPUs in all is not their business.
    #[must_use]
    pub fn fits_target(&self, cpu_manager: Manager) -> bool {
        match self.expect {
            Expect::CannotAlign => false,
            Expect::WholeCpusOnly => cpu_manager == Manager::Static,
            Expect::Target | Expect::InsufficientCpu => true,
        }
    }

    /// Whether zones of the other nodes must not hold the pod; else the nodes as a whole decide.
    #[must_use]
    pub fn never_fits_others(&self) -> bool {
        !matches!(self.expect, Expect::InsufficientCpu | Expect::WholeCpusOnly)
    }
}

fn read(text: &str) -> Result<Amounts, String> {
    Amounts::parse(text, &Scale { cpus: 1, devices: SAMPLES.map(str::to_owned) })
}

fn zone(id: u32, full: &str, left: &str) -> Result<Zone, String> {
    let (full, left) = (read(full)?, read(left)?);
    let available = |name, full| left.iter().find(|(other, _)| *other == name).map_or(full, |(_, left)| left);
    let resources = full.iter().map(|(name, full)| {
        let available = available(name, full);
        ZoneResource { name, capacity: full, allocatable: full, available }
    });
    Ok(Zone { id: ZoneId(id), resources: resources.collect(), distances: vec![] })
}

/// All.
pub const VECTORS: &[Vector] = &[
    Vector {
        id: "47575",
        tier: 0,
        scope: Scope::Container,
        labels: &["cpu", "memory"],
        about: "containers of 6 and 12 CPUs",
        init: &[],
        app: &["6 6Gi", "12 8Gi"],
        others: ["2 2Gi", "16 12Gi"],
        target: ["6 6Gi", "12 8Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "47577",
        tier: 0,
        scope: Scope::Pod,
        labels: &["cpu", "memory"],
        about: "containers of 6 and 8 CPUs",
        init: &[],
        app: &["6 4Gi", "8 12Gi"],
        others: ["14 6Gi", "10 20Gi"],
        target: ["2 2Gi", "14 16Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "50183",
        tier: 1,
        scope: Scope::Container,
        labels: &["hugepages"],
        about: "containers with huge pages",
        init: &[],
        app: &["6 6Gi hugepages-2Mi=96Mi", "12 8Gi hugepages-2Mi=128Mi"],
        others: ["2 2Gi", "16 12Gi hugepages-2Mi=192Mi"],
        target: ["6 6Gi hugepages-2Mi=96Mi", "12 8Gi hugepages-2Mi=128Mi"],
        expect: Expect::Target,
    },
    Vector {
        id: "50184",
        tier: 1,
        scope: Scope::Pod,
        labels: &["hugepages"],
        about: "containers with huge pages",
        init: &[],
        app: &["6 4Gi hugepages-2Mi=32Mi", "8 12Gi hugepages-2Mi=128Mi"],
        others: ["14 10Gi hugepages-2Mi=32Mi", "10 16Gi hugepages-2Mi=144Mi"],
        target: ["2 2Gi", "14 16Gi hugepages-2Mi=160Mi"],
        expect: Expect::Target,
    },
    Vector {
        id: "85000",
        tier: 1,
        scope: Scope::Container,
        labels: &[],
        about: "three containers",
        init: &[],
        app: &["4 4Gi", "4 4Gi", "8 4Gi"],
        others: ["12 8Gi", "4 4Gi"],
        target: ["8 8Gi", "8 4Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "85001",
        tier: 1,
        scope: Scope::Container,
        labels: &["cpu"],
        about: "containers that differ from the others in CPUs",
        init: &[],
        app: &["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        others: ["1 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "7 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        target: ["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "85002",
        tier: 1,
        scope: Scope::Container,
        labels: &["memory"],
        about: "containers that differ from the others in memory",
        init: &[],
        app: &["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        others: ["4 1Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 7Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        target: ["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "85003",
        tier: 1,
        scope: Scope::Container,
        labels: &["hugepages", "hugepages2Mi"],
        about: "containers that differ in small huge pages",
        init: &[],
        app: &["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        others: ["1 4Gi hugepages-2Mi=16Mi hugepages-1Gi=1Gi", "7 4Gi hugepages-2Mi=48Mi hugepages-1Gi=1Gi"],
        target: ["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "85004",
        tier: 1,
        scope: Scope::Container,
        labels: &["hugepages", "hugepages1Gi"],
        about: "containers that differ in large huge pages",
        init: &[],
        app: &["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        others: ["1 4Gi hugepages-2Mi=32Mi hugepages-1Gi=0", "7 4Gi hugepages-2Mi=32Mi hugepages-1Gi=2Gi"],
        target: ["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "54021",
        tier: 1,
        scope: Scope::Container,
        labels: &["devices"],
        about: "containers with three devices",
        init: &[],
        app: &["4 4Gi dev1=2 dev3=1", "4 4Gi dev2=2"],
        others: ["1 4Gi dev1=1 dev3=1", "7 4Gi dev1=1 dev2=2"],
        target: ["4 4Gi dev1=2 dev3=1", "4 4Gi dev2=2"],
        expect: Expect::Target,
    },
    Vector {
        id: "85005",
        tier: 1,
        scope: Scope::Container,
        labels: &[],
        about: "an init container and three containers",
        init: &["2 2Gi"],
        app: &["4 4Gi", "4 4Gi", "8 4Gi"],
        others: ["12 8Gi", "4 4Gi"],
        target: ["8 8Gi", "8 4Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "85006",
        tier: 1,
        scope: Scope::Container,
        labels: &[],
        about: "three init containers and three containers",
        init: &["8 4Gi", "8 4Gi", "8 4Gi"],
        app: &["4 4Gi", "4 4Gi", "8 4Gi"],
        others: ["12 8Gi", "4 4Gi"],
        target: ["8 8Gi", "8 4Gi"],
        expect: Expect::Target,
    },
    Vector {
        id: "54018",
        tier: 1,
        scope: Scope::Container,
        labels: &["devices"],
        about: "containers with devices",
        init: &[],
        app: &["6 6Gi dev1=3", "12 8Gi dev1=4"],
        others: ["6 2Gi dev1=2", "12 12Gi dev1=3"],
        target: ["6 6Gi dev1=3", "12 8Gi dev1=4"],
        expect: Expect::Target,
    },
    Vector {
        id: "54016",
        tier: 0,
        scope: Scope::Pod,
        labels: &["devices"],
        about: "five devices",
        init: &[],
        app: &["8 4Gi dev1=5"],
        others: ["6 4Gi dev1=3", "6 4Gi dev1=3"],
        target: ["1 1Gi", "8 4Gi dev1=5"],
        expect: Expect::Target,
    },
    Vector {
        id: "54025",
        tier: 2,
        scope: Scope::Container,
        labels: &["devices", "qos:be"],
        about: "best-effort containers with devices",
        init: &[],
        app: &["dev1=5 dev2=2", "dev2=1 dev3=3"],
        others: ["6 4Gi dev1=1", "6 4Gi dev1=1"],
        target: ["dev1=1 dev2=3", "dev1=5 dev2=2"],
        expect: Expect::Target,
    },
    Vector {
        id: "55431",
        tier: 1,
        scope: Scope::Pod,
        labels: &["devices", "qos:be"],
        about: "best-effort pods with devices",
        init: &[],
        app: &["dev1=5 dev2=2"],
        others: ["6 4Gi dev1=1", "6 4Gi dev1=1"],
        target: ["dev2=1", "dev1=5 dev2=2"],
        expect: Expect::Target,
    },
    Vector {
        id: "55450",
        tier: 2,
        scope: Scope::Pod,
        labels: &["devices", "hostlevel", "qos:bu"],
        about: "burstable containers with devices and storage",
        init: &[],
        app: &["cpu=1 dev2=2 dev3=3 ephemeral-storage=32Mi", "ephemeral-storage=32Mi"],
        others: ["6 4Gi dev2=1", "6 4Gi dev2=1"],
        target: ["dev2=2 dev3=3", "dev2=1"],
        expect: Expect::Target,
    },
    Vector {
        id: "54024",
        tier: 2,
        scope: Scope::Container,
        labels: &["devices", "hostlevel", "qos:bu"],
        about: "burstable containers with devices and storage",
        init: &[],
        app: &["cpu=1 dev1=5 dev2=2 ephemeral-storage=32Mi", "dev2=1 dev3=3 ephemeral-storage=32Mi"],
        others: ["6 4Gi dev1=1", "6 4Gi dev1=1"],
        target: ["dev2=1 dev3=3", "dev1=5 dev2=2"],
        expect: Expect::Target,
    },
    Vector {
        id: "85007",
        tier: 0,
        scope: Scope::Container,
        labels: &["unsched", "cpu"],
        about: "two containers of 5 CPUs",
        init: &[],
        app: &["5 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "5 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        others: ["1 4Gi", "4 4Gi"],
        target: ["1 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "9 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "74256",
        tier: 3,
        scope: Scope::Pod,
        labels: &["unsched", "cpu"],
        about: "containers with parts of CPUs",
        init: &[],
        app: &["4300m 4Gi hugepages-2Mi=32Mi", "7500m 4Gi hugepages-2Mi=32Mi", "2500m 4Gi"],
        others: ["1", "1"],
        target: ["11 12Gi hugepages-2Mi=128Mi", "6 12Gi hugepages-2Mi=128Mi"],
        expect: Expect::WholeCpusOnly,
    },
    Vector {
        id: "74257",
        tier: 3,
        scope: Scope::Pod,
        labels: &["unsched", "cpu", "feature:nonreg", "qos:bu"],
        about: "burstable containers with parts of CPUs",
        init: &[],
        app: &["cpu=4300m hugepages-2Mi=32Mi", "cpu=10", "cpu=3500m memory=4Gi"],
        others: ["1", "1"],
        target: ["8 12Gi hugepages-2Mi=128Mi", "7 12Gi hugepages-2Mi=128Mi"],
        expect: Expect::InsufficientCpu,
    },
    Vector {
        id: "85008",
        tier: 0,
        scope: Scope::Container,
        labels: &["unsched", "memory"],
        about: "two containers of 7 GiB",
        init: &[],
        app: &["4 7Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 7Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        others: ["1 1Gi", "4 7Gi"],
        target: ["4 1Gi", "4 13Gi"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "85009",
        tier: 1,
        scope: Scope::Container,
        labels: &["unsched", "hugepages", "hugepages2Mi"],
        about: "containers with small huge pages",
        init: &[],
        app: &["4 4Gi hugepages-2Mi=16Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=48Mi hugepages-1Gi=1Gi"],
        others: ["1 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        target: ["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "85011",
        tier: 0,
        scope: Scope::Container,
        labels: &["unsched", "hugepages", "hugepages1Gi"],
        about: "containers with large huge pages",
        init: &[],
        app: &["4 4Gi hugepages-2Mi=32Mi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=2Gi"],
        others: ["1 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        target: ["4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi", "4 4Gi hugepages-2Mi=32Mi hugepages-1Gi=1Gi"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "54020",
        tier: 2,
        scope: Scope::Container,
        labels: &["unsched", "devices"],
        about: "containers with three devices",
        init: &[],
        app: &["4 4Gi dev2=2", "4 4Gi dev1=2 dev3=2"],
        others: ["1 4Gi", "4 4Gi"],
        target: ["4 4Gi dev1=1 dev3=2", "4 4Gi dev1=1 dev2=2"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "54019",
        tier: 1,
        scope: Scope::Container,
        labels: &["unsched", "devices"],
        about: "containers with devices",
        init: &[],
        app: &["5 4Gi dev1=3", "5 4Gi dev1=2"],
        others: ["1 2Gi", "2 4Gi"],
        target: ["5 4Gi dev1=1", "5 4Gi dev1=4"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "54017",
        tier: 1,
        scope: Scope::Pod,
        labels: &["unsched", "devices"],
        about: "containers with devices",
        init: &[],
        app: &["8 4Gi dev1=3", "8 4Gi dev2=2"],
        others: ["1 2Gi", "2 3Gi"],
        target: ["8 4Gi dev1=3", "8 4Gi dev2=2"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "55430",
        tier: 2,
        scope: Scope::Pod,
        labels: &["unsched", "devices", "qos:be"],
        about: "best-effort pods with devices",
        init: &[],
        app: &["dev1=3 dev2=4"],
        others: ["1 1Gi dev1=1 dev2=1", "1 1Gi dev1=1 dev2=1"],
        target: ["dev1=1 dev2=2", "dev1=2 dev2=2"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "55429",
        tier: 2,
        scope: Scope::Pod,
        labels: &["unsched", "devices", "qos:bu"],
        about: "burstable pods with devices",
        init: &[],
        app: &["cpu=1 dev1=3 dev2=4"],
        others: ["1 1Gi dev1=1 dev2=1", "1 1Gi dev1=1 dev2=1"],
        target: ["4 4Gi dev1=1 dev2=2", "4 4Gi dev1=2 dev2=2"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "54023",
        tier: 2,
        scope: Scope::Container,
        labels: &["unsched", "devices", "qos:be"],
        about: "best-effort containers with devices",
        init: &[],
        app: &["dev2=2", "dev1=2 dev3=2"],
        others: ["1 4Gi dev1=1", "4 4Gi dev1=1"],
        target: ["dev1=1 dev3=2", "dev1=1 dev2=2"],
        expect: Expect::CannotAlign,
    },
    Vector {
        id: "54022",
        tier: 2,
        scope: Scope::Container,
        labels: &["unsched", "devices", "qos:bu"],
        about: "burstable containers with devices",
        init: &[],
        app: &["cpu=4 dev2=2", "dev1=2 dev3=2"],
        others: ["1 4Gi dev2=1", "4 4Gi dev2=1"],
        target: ["dev1=1 dev3=2", "dev1=1 dev2=2"],
        expect: Expect::CannotAlign,
    },
];

#[cfg(test)]
mod tests {
    use serde_json::json;
    use topology::admit::{Scratch, admit};

    use super::*;

    /// The model decides each vector as the kubelets of a cluster must.
    #[test]
    fn the_model_agrees() {
        for vector in VECTORS {
            let needs = api::convert::pod_request(&vector.pod().unwrap()).unwrap().needs();
            let fits = |zones, manager| {
                let node = vector.node(zones, manager).unwrap();
                admit(node.rules, &node.available(), &needs, &mut Scratch::default()).is_ok()
            };
            for manager in [Manager::Unknown, Manager::Static] {
                let fits_others = fits(&vector.others, manager);
                assert!(!(fits_others && vector.never_fits_others()), "{}: others, {manager:?}", vector.id);
                let (found, wanted) = (fits(&vector.target, manager), vector.fits_target(manager));
                assert_eq!(found, wanted, "{}: target, {manager:?}", vector.id);
            }
        }
    }

    #[test]
    fn quality_of_service_is_as_the_labels_say() {
        for vector in VECTORS {
            let pod = vector.pod().unwrap();
            let qos = api::convert::pod_request(&pod).unwrap().qos();
            let wanted = match vector.labels {
                labels if labels.contains(&"qos:be") => topology::request::Qos::BestEffort,
                labels if labels.contains(&"qos:bu") => topology::request::Qos::Burstable,
                _ => topology::request::Qos::Guaranteed,
            };
            assert_eq!(qos, wanted, "{}", vector.id);
            assert!(!json!(pod).is_null());
        }
    }
}
