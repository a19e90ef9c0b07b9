//! What a NUMA node is, what fits on it, and why not.
//!
//! In: quantities, a node's zones and a pod's requests, as values. Out: whether the kubelet would admit the pod, where
//! it would put it, how good that is, and the reasons as data. Never: I/O, async, a clock, or a Kubernetes client.
//!
//! Everything that decides or explains a placement in tholepin (scheduler, simulator, exporter, tests) calls this
//! crate, so each behaviour of the kubelet is described exactly once.
//!
//! # Example
//! A node with two zones of 4 and 8 CPUs, whose kubelet runs the policy `single-numa-node`. A pod of 6 CPUs goes to the
//! second zone; a pod of 12 is rejected.
//!
//! ```
//! use topology::admit::{Scratch, admit};
//! use topology::policy::{Manager, Policy, Rules};
//! use topology::request::{ContainerKind, ContainerNeeds, Need, PodNeeds, Qos};
//! use topology::resource::ResourceName;
//! use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};
//!
//! let cpu = ResourceName::CPU; // amounts of CPU are thousandths
//! let zone = |id, amount| Zone {
//!     id: ZoneId(id),
//!     resources: vec![ZoneResource { name: cpu, capacity: amount, allocatable: amount, available: amount }],
//!     distances: vec![],
//! };
//! let node = NodeTopology { zones: vec![zone(0, 4_000), zone(1, 8_000)], ..NodeTopology::default() };
//! let rules = Rules { policy: Policy::SingleNumaNode, cpu_manager: Manager::Static, ..Rules::default() };
//! let pod = |amount| {
//!     let needs = vec![Need { name: cpu, amount }];
//!     PodNeeds {
//!         qos: Qos::Guaranteed,
//!         containers: vec![ContainerNeeds { name: "main".into(), kind: ContainerKind::App, needs: needs.clone() }],
//!         totals: needs.clone(),
//!         pod_scope: needs,
//!         overhead: vec![],
//!         pod_scope_whole_cpu: amount,
//!         pod: Default::default(),
//!     }
//! };
//!
//! let (mut free, mut scratch) = (node.available(), Scratch::default());
//! let placement = admit(rules, &free, &pod(6_000), &mut scratch).unwrap();
//! placement.charge(&mut free);
//! assert_eq!(free.amount(ZoneId(1), cpu), 2_000);
//!
//! let misfit = admit(rules, &free, &pod(12_000), &mut scratch).unwrap_err();
//! assert_eq!(misfit.constraint.to_string(), "cpu: requested 12, most in one zone 4 (zone 0)");
//! ```

pub mod admit;
pub mod cpuset;
pub mod fingerprint;
pub mod gobool;
pub mod kubelet;
pub mod placement;
pub mod policy;
pub mod quantity;
pub mod reason;
pub mod request;
pub mod resource;
pub mod score;
pub mod siblings;
pub mod zone;
