//! The reason of a kubelet's rejection in terms of zones and amounts.
//!
//! In: a state, a pod that the kubelet would reject, and its words. Out: the container that it rejects the pod for, and
//! the first resource that is short. Never: a verdict; that is the model's.
//!
//! Cost: an admission by amounts, and one for each container. It is paid for a refused pod alone.

use std::cmp::Reverse;

use topology::admit;
use topology::kubelet::alignment::fewest_zones_for;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::pod::Pod;
use topology::kubelet::rejection::Rejection;
use topology::kubelet::{self, device_manager::Lowest};
use topology::policy::{Policy, Rules, Scope};
use topology::reason::{Constraint, Misfit, Part};
use topology::request::{Need, PodNeeds};
use topology::resource::ResourceName;

use super::Ids;
use crate::ledger::amounts::Scratch;

impl Ids {
    /// The reason, where amounts show it.
    pub(in crate::ledger::amounts) fn misfit(
        &self,
        rejection: &Rejection,
        rules: Rules,
        needs: &PodNeeds,
        scratch: &mut Scratch,
    ) -> Misfit {
        let is_about_cores =
            matches!(rejection, Rejection::NotWholeCores { .. } | Rejection::TooFewCores { .. });
        if rules.policy == Policy::SingleNumaNode
            && !is_about_cores
            && let Err(misfit) = admit::admit(rules, &self.free, needs, &mut scratch.counts)
        {
            return misfit;
        }
        let (part, container) = match rules.scope {
            Scope::Pod if rules.policy != Policy::None => (Part::Pod, 0),
            _ => {
                let at = self.first_refused(needs);
                (needs.containers.get(at).map_or(Part::Container, |it| Part::of(it.kind)), at)
            }
        };
        let constraint = match rejection {
            _ if is_about_cores => Constraint::WholeCores,
            _ => self.shortage(rules, needs, (part, container)).unwrap_or(match rejection {
                Rejection::Memory(_) => Constraint::Grouped,
                _ => Constraint::NoCommonZone,
            }),
        };
        Misfit { part, container, constraint }
    }

    /// The first container that the kubelet would reject the pod for.
    fn first_refused(&self, needs: &PodNeeds) -> usize {
        let containers = &needs.pod.containers;
        let refuses = |count: &usize| {
            let pod =
                Pod { containers: containers.iter().take(*count).cloned().collect(), ..(*needs.pod).clone() };
            kubelet::admit(&self.vacant.start.kubelet, &mut self.state.clone(), &pod, &Lowest).is_err()
        };
        let last = containers.len().saturating_sub(1);
        (1..=last).find(refuses).map_or(last, |count| count - 1)
    }

    /// The first resource of which no set of zones has enough, of as many zones as the policy lets it take.
    fn shortage(&self, rules: Rules, needs: &PodNeeds, (part, at): (Part, usize)) -> Option<Constraint> {
        let asked: &[Need] = match part {
            Part::Pod => &needs.pod_scope,
            _ => needs.containers.get(at).map_or(&[], |container| &container.needs),
        };
        asked.iter().find_map(|need| {
            let column = admit::charged_column(rules, &self.free, needs.qos, *need)?;
            let is_sum_of_cpus = part == Part::Pod && need.name == ResourceName::CPU;
            let requested = if is_sum_of_cpus { needs.pod_scope_whole_cpu } else { need.amount };
            let zones = self.free.layout().zones();
            let count = match rules.policy {
                Policy::SingleNumaNode => 1,
                Policy::Restricted => self.zones_for(need.name, column, requested),
                Policy::None | Policy::BestEffort => zones.len(),
            };
            let mut rows: Vec<(i64, Reverse<usize>)> =
                (0..zones.len()).map(|row| (self.free.get(row, column), Reverse(row))).collect();
            rows.sort_unstable_by(|one, other| other.cmp(one));
            rows.truncate(count);
            let most: i64 = rows.iter().map(|(amount, _)| amount.max(&0)).sum();
            let zones: ZoneMask = rows.iter().map(|(_, row)| zones[row.0].0).collect();
            (most < requested).then_some(Constraint::Short { resource: need.name, requested, most, zones })
        })
    }

    /// The least number of zones that can have so much when nothing is in use; all if they never can.
    fn zones_for(&self, name: ResourceName, column: usize, requested: i64) -> usize {
        let allocatable = self.vacant.allocatable();
        let zones = allocatable.layout().zones();
        let machine = self.vacant.start.kubelet.machine();
        let rooms = (0..zones.len()).map(|row| {
            // Reserved CPUs count here (kubelet cpumanager `generateCPUTopologyHints`).
            let cpus = || super::amount(machine.cpus_of(ZoneMask::of(zones[row].0)).len());
            let is_cpu = name == ResourceName::CPU;
            let room = if is_cpu { cpus() * name.base_units() } else { allocatable.get(row, column) };
            u64::try_from(room).unwrap_or(0)
        });
        fewest_zones_for(u64::try_from(requested).unwrap_or(0), rooms.collect()) as usize
    }
}
