//! What happens in a sequence: made of nothing but a seed and what the node has.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use runtime::random::Random;
use testkit::load;

/// What may be asked of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Menu {
    /// CPUs a container may ask for at most: a little more than a zone has.
    pub(super) cpus: u64,
    /// Names of device resources, and how many a container may ask for.
    pub(super) devices: &'static [(&'static str, u64)],
    /// Hugepages of 2 MiB are there.
    pub(super) hugepages: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// A pod comes.
    Create(Shape),
    /// The pod of an earlier step goes.
    Delete {
        /// Which, counted over the pods of the sequence.
        pod: usize,
        /// With grace period 0: its object goes first.
        force: bool,
    },
    /// A device breaks, or is well again.
    Health {
        /// Which, counted over all devices.
        device: u64,
    },
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// Requests are limits.
    pub(super) exact: bool,
    /// It ends by itself after a moment.
    pub(super) ends: bool,
    /// By container; the first may be a sidecar.
    pub(super) containers: Vec<BTreeMap<&'static str, String>>,
    /// Whether it is.
    pub(super) sidecar: bool,
}

/// The steps of a sequence.
pub(super) fn steps(random: &mut Random, menu: &Menu) -> Vec<Step> {
    let mut below = |bound: u64| random.bits() % bound.max(1);
    let count = 5 + below(5);
    let mut steps = Vec::new();
    let mut pods = 0;
    let mut there: Vec<usize> = Vec::new();
    for _ in 0..count {
        let dice = below(100);
        if dice < 5 && !menu.devices.is_empty() {
            steps.push(Step::Health { device: below(64) });
        } else if dice < 40 && !there.is_empty() {
            let pod = there.remove(below(there.len() as u64) as usize);
            steps.push(Step::Delete { pod, force: below(2) == 0 });
        } else {
            steps.push(Step::Create(shape(&mut below, menu)));
            there.push(pods);
            pods += 1;
        }
    }
    steps
}

fn shape(below: &mut impl FnMut(u64) -> u64, menu: &Menu) -> Shape {
    let containers = match below(100) {
        0..70 => 1,
        70..95 => 2,
        _ => 3,
    };
    let class = below(100);
    let container = |below: &mut dyn FnMut(u64) -> u64| {
        let mut wants = BTreeMap::new();
        match class {
            // Guaranteed, mostly of whole CPUs.
            0..84 => {
                let share = if containers == 1 { menu.cpus } else { menu.cpus / 2 };
                let milli = if below(12) == 0 { 500 } else { 0 };
                wants.insert("cpu", format!("{}m", (1 + below(share)) * 1000 - milli));
                wants.insert("memory", ["64Mi", "500M", "2Gi", "6Gi"][below(4) as usize].to_owned());
            }
            // Burstable.
            84..93 => {
                wants.insert("cpu", format!("{}m", 500 * (1 + below(6))));
            }
            // BestEffort.
            _ => {}
        }
        if menu.hugepages && class < 84 && below(3) == 0 {
            wants.insert("hugepages-2Mi", format!("{}Mi", 2 * (1 + below(400))));
        }
        if !menu.devices.is_empty() && below(2) == 0 {
            let (name, most) = menu.devices[below(menu.devices.len() as u64) as usize];
            wants.insert(name, (1 + below(most)).to_string());
        }
        wants
    };
    let containers: Vec<_> = (0..containers).map(|_| container(below)).collect();
    let sidecar = containers.len() > 1 && below(4) == 0;
    Shape { exact: class < 84, ends: below(12) == 0 && !sidecar, sidecar, containers }
}

impl Shape {
    /// The pod, bound to a node.
    pub(super) fn pod(&self, name: &str, node: &str) -> Pod {
        let mut pod = load::guaranteed_pod(name, "nobody", []);
        let spec = pod.spec.get_or_insert_default();
        spec.node_name = Some(node.to_owned());
        let mut all: Vec<_> =
            self.containers.iter().enumerate().map(|(number, wants)| self.container(number, wants)).collect();
        if self.sidecar {
            let sidecar = Container { restart_policy: Some("Always".to_owned()), ..all.remove(0) };
            spec.init_containers = Some(vec![sidecar]);
        }
        spec.containers = all;
        if self.ends {
            spec.restart_policy = Some("Never".to_owned());
        }
        pod
    }

    fn container(&self, number: usize, wants: &BTreeMap<&'static str, String>) -> Container {
        let amount = |(name, amount): (&&str, &String)| ((*name).to_owned(), Quantity(amount.clone()));
        let all: BTreeMap<_, _> = wants.iter().map(amount).collect();
        // What is not exact is requested without a limit; devices and hugepages have to have one.
        let limited = |name: &String| self.exact || (name != "cpu" && name != "memory");
        let limits = all.iter().filter(|(name, _)| limited(name)).map(|(k, v)| (k.clone(), v.clone()));
        Container {
            name: format!("c{number}"),
            image: Some("pause".to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            command: self.ends.then(|| vec!["sleep".to_owned(), "1500ms".to_owned()]),
            resources: Some(ResourceRequirements {
                limits: Some(limits.collect()),
                requests: Some(all),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        }
    }
}

impl fmt::Display for Step {
    /// `+1000m/64Mi,2000m/1Gi`, `-2`, `-2!`, `health 7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete { pod, force } => write!(f, "-{pod}{}", if *force { "!" } else { "" }),
            Self::Health { device } => write!(f, "health {device}"),
            Self::Create(shape) => {
                let container = |wants: &BTreeMap<&'static str, String>| {
                    wants
                        .iter()
                        .map(|(name, amount)| format!("{name}={amount}"))
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                let all: Vec<_> = shape.containers.iter().map(container).collect();
                let marks =
                    [(!shape.exact, " burstable"), (shape.sidecar, " sidecar"), (shape.ends, " ends")];
                let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
                write!(f, "+[{}]{marks}", all.join(" | "))
            }
        }
    }
}

#[test]
fn a_seed_says_it_all() {
    let menu = Menu { cpus: 9, devices: &[("example.com/nic", 2)], hugepages: true };
    let steps = |seed| steps(&mut Random::seeded(seed), &menu);
    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
    let all: Vec<_> = (0..200).flat_map(steps).map(|step| step.to_string()).collect();
    for wanted in ["!", "health", "burstable", "sidecar", "ends", "hugepages", "nic", " | ", "500m", "+[]"] {
        assert!(all.iter().any(|step| step.contains(wanted)), "{wanted}");
    }
}
