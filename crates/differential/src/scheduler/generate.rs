//! Random clusters, configurations and pods that meet every rule of kube-scheduler's plugins often.
//!
//! In: a seed and a number. Out: the same case for the same two. Never: an object that the API server would refuse, nor
//! one without the defaults that it fills in.

mod configuration;
mod constraints;
mod devices;
mod extended;
mod nodes;
mod pods;
mod selecting;
mod soften;
mod storage;

use runtime::random::Random;
use serde_json::{Value, json};

use crate::generate::Dice;
use crate::scheduler::case::{Case, Devices, Storage};

/// The name of the profile.
pub const SCHEDULER: &str = "default-scheduler";

/// Namespaces.
const NAMESPACES: [&str; 3] = ["default", "team", "other"];
/// Values of their label `team`.
const TEAMS: [&str; 2] = ["a", "b"];

/// Cases about scores, in percent. The others are about verdicts: most nodes are refused, or all.
const SOFT: u64 = 30;

/// The case of a seed and a number.
#[must_use]
pub fn case(seed: u64, number: u64) -> Case {
    let mut start = Random::seeded(seed);
    let mut dice = Dice::new(start.bits() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let is_soft = dice.percent(SOFT);
    let nodes = nodes::nodes(&mut dice, is_soft);
    let mut pods = pods::on_nodes(&mut dice, nodes.len() as u64);
    let pod = pods::to_place(&mut dice, nodes.len() as u64);
    let namespaces = NAMESPACES.map(|name| namespace(&mut dice, name)).to_vec();
    let configuration = configuration::configuration(&mut dice);
    if configuration::keeps_nominations(&configuration) && dice.percent(25) {
        pods.extend((0..dice.between(1, 2)).map(|at| pods::nominated(&mut dice, at, nodes.len() as u64)));
    }
    let pod_disruption_budgets = pods::budgets(&mut dice);
    let [replication_controllers, replica_sets, stateful_sets] = selecting::controllers(&mut dice);
    let storage = Storage::default();
    let mut case = Case {
        services: selecting::services(&mut dice),
        replication_controllers,
        replica_sets,
        stateful_sets,
        nodes,
        pods,
        namespaces,
        pod_disruption_budgets,
        storage,
        devices: Devices::default(),
        configuration,
        pod,
    };
    if is_soft {
        soften::soften(&mut dice, &mut case);
        if dice.percent(35) {
            devices::add_preferred(&mut dice, &mut case);
        } else if dice.percent(8) {
            extended::add_preferred(&mut dice, &mut case);
        }
        return case;
    }
    if dice.percent(95) {
        storage::add(&mut dice, &mut case);
    }
    if dice.percent(35) {
        devices::add(&mut dice, &mut case);
        if dice.percent(20) {
            extended::add(&mut dice, &mut case);
        }
    }
    case
}

fn namespace(dice: &mut Dice, name: &str) -> Value {
    let mut labels = json!({ "kubernetes.io/metadata.name": name });
    if dice.percent(75) {
        labels["team"] = dice.pick(&TEAMS).into();
    }
    json!({ "metadata": { "name": name, "labels": labels } })
}
