//! Which nodes get which version of the driver now.
//!
//! In: the nodes of one DeviceConfig as [`RolloutNode`]s, its policy. Out: [`Step`]s, and who has to wait for what.
//! Never: more nodes without a working driver because of us than the policy allows; a driver taken from under a pod
//! unless that was asked for; a write.
//!
//! KMM loads on a node the version that its label says. A node without one gets it at once: nothing is loaded there, so
//! nothing can break. A node with another version is changed when there is room. Before that, and before it is given
//! back, the node is fenced (a taint that new pods do not tolerate), so that no pod arrives between the look at its
//! pods and the change; the fence goes when nothing is to be unloaded there any more. What is not known, such as the
//! pods before they were listed, counts as in use.

use std::collections::BTreeSet;

use api::hardware::PodsUsingDevices;

/// How versions reach nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// The version that is wanted.
    pub version: &'a str,
    /// How many nodes may be without a working driver.
    pub most_unavailable: usize,
    /// What becomes of pods that use the devices.
    pub pods: PodsUsingDevices,
    /// No node gets another version.
    pub paused: bool,
    /// Device names are known, so that pods that use devices can be found.
    pub devices_known: bool,
}

/// Who uses the devices of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Not known yet.
    Unknown,
    /// These pods; an empty list means that the devices are free.
    Pods(Vec<Pod>),
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// It is already being deleted.
    pub leaving: bool,
}

impl Users {
    /// Who they are, if there are any: the first of them, and how many there are.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Unknown => Some("pods that are not known yet".to_owned()),
            Self::Pods(pods) => {
                let first = pods.iter().min()?;
                let more = pods.len() - 1;
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                Some(format!("{}/{}{more}", first.namespace, first.name))
            }
        }
    }
}

/// A node with our claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutNode<'a> {
    /// Its name.
    pub node: &'a str,
    /// It no longer matches, and is to be given back.
    pub ending: bool,
    /// The version its label says.
    pub version: Option<&'a str>,
    /// The version that is loaded.
    pub loaded: Option<&'a str>,
    /// The driver that its label says is loaded and working.
    pub ready: bool,
    /// It has our fence.
    pub fenced: bool,
    /// What is loaded is about to be unloaded, though its version is that of the label.
    pub stale: bool,
    /// Its fence is for more than its version: a Module that is about to be written.
    pub reserved: bool,
    /// There is an image for its kernel.
    pub supported: bool,
    /// Its taints keep the driver away: a cordon, for one.
    pub maintenance: bool,
    /// The machine was started anew, and what was loaded before is not loaded again yet.
    pub rebooted: bool,
    /// Who uses its devices.
    pub users: Users,
}

/// What to do on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Tell the first version.
    Start(String),
    /// Set another version; `checked`: only if no pod uses the devices.
    Switch {
        /// The node.
        node: String,
        /// What its label says now.
        from: String,
        /// Look once more whether a pod uses the devices.
        checked: bool,
    },
    /// Keep new pods away.
    Fence(String),
    /// Let pods come again.
    Unfence(String),
    /// Ask a pod to go.
    Evict {
        /// The node.
        node: String,
        /// The pod.
        pod: Pod,
    },
    /// Give the node back; `checked`: only if no pod uses the devices.
    Release {
        /// The node.
        node: String,
        /// Look once more whether a pod uses the devices.
        checked: bool,
    },
}

/// Why a node keeps what it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Pods use the devices; the first of them, and how many there are.
    Pods(String, usize),
    /// Which pods use the devices is not known yet.
    Unknown,
    /// Enough others are without a working driver.
    Turn,
    /// Upgrades are paused.
    Paused,
    /// It is cordoned or otherwise tainted.
    Maintenance,
}

/// What is to be done, and what is not done yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// What to do now, in this order.
    pub steps: Vec<Step>,
    /// Nodes that keep what they have, and why.
    pub waiting: Vec<(String, Wait)>,
    /// Nodes without a working driver, of those that should have one, unless a taint or a start of the machine took it.
    pub unavailable: Vec<String>,
}

impl Users {
    /// Devices are in use, or may be.
    #[must_use]
    pub fn any(&self) -> bool {
        !matches!(self, Self::Pods(pods) if pods.is_empty())
    }
}

impl RolloutNode<'_> {
    /// It should have a working driver and has none, for all that is known because of us: a first version that does not
    /// load is as good a reason not to go on as any. What a taint or a start of the machine takes would be gone without
    /// us, too.
    fn is_missing(&self) -> bool {
        self.supported && !self.ready && !self.maintenance && !self.rebooted
    }

    /// It has to be told another version.
    fn is_candidate(&self, wanted: &str) -> bool {
        self.version.is_some_and(|version| version != wanted)
    }

    /// Nothing there is about to be unloaded: a new pod keeps its device.
    fn is_settled(&self) -> bool {
        !self.stale && self.loaded.is_none_or(|loaded| self.version == Some(loaded))
    }
}

/// What is to be done on these nodes. The same nodes in another order give the same.
#[must_use]
pub fn round(policy: &Policy<'_>, states: &[RolloutNode<'_>]) -> Round {
    let mut states: Vec<&RolloutNode<'_>> = states.iter().collect();
    states.sort_by_key(|state| state.node);
    let mut round = Round::default();
    let (ending, ours): (Vec<&RolloutNode<'_>>, Vec<&RolloutNode<'_>>) =
        states.into_iter().partition(|state| state.ending);
    for state in ending {
        round.end(policy, state);
    }
    for state in ours.iter().filter(|state| state.version.is_none()) {
        round.steps.push(Step::Start(state.node.to_owned()));
    }
    let missing = ours.iter().filter(|state| state.is_missing());
    round.unavailable = missing.map(|state| state.node.to_owned()).collect();

    let mut chosen = BTreeSet::new();
    let mut room = policy.most_unavailable.saturating_sub(round.unavailable.len());
    // Those that can lose nothing come first and take no room.
    let mut candidates: Vec<&&RolloutNode<'_>> =
        ours.iter().filter(|state| state.is_candidate(policy.version)).collect();
    // Those that are fenced were begun: they come before others, so that no more than needed are fenced.
    candidates.sort_by_key(|state| (state.ready && state.supported, !state.fenced, state.node));
    for state in candidates {
        if round.change(policy, state, &mut room) {
            chosen.insert(state.node);
        }
    }
    for state in ours.iter().filter(|state| !chosen.contains(state.node)) {
        round.unfence(state);
    }
    round
}

/// What is to be done before the driver goes from all of these nodes at once. Cordon taints stay: a pod that came now
/// would lose its device, or keep the driver there for ever. No pod is evicted before all nodes are tainted: it would
/// move to the next one.
#[must_use]
pub fn clear(pods: PodsUsingDevices, states: &[RolloutNode<'_>]) -> Round {
    let evict = pods == PodsUsingDevices::Evict;
    let is_fenced = states.iter().all(|state| state.fenced);
    let mut round = Round::default();
    for state in states {
        let fence = match &state.users {
            Users::Unknown => false,
            users => evict || !users.any(),
        };
        if fence && !state.fenced {
            round.steps.push(Step::Fence(state.node.to_owned()));
        }
        match &state.users {
            Users::Unknown => drop(round.wait(state, Wait::Unknown)),
            Users::Pods(pods) if pods.is_empty() => {}
            Users::Pods(pods) if evict && is_fenced => round.evict(state, pods),
            Users::Pods(pods) => drop(round.wait(state, using(pods))),
        }
    }
    round
}

impl Round {
    /// A node that has another version: says whether it is being changed.
    fn change(&mut self, policy: &Policy<'_>, state: &RolloutNode<'_>, room: &mut usize) -> bool {
        if policy.paused {
            return self.wait(state, Wait::Paused);
        }
        if state.maintenance && state.supported {
            return self.wait(state, Wait::Maintenance);
        }
        let costs = usize::from(state.ready && state.supported);
        if *room < costs {
            return self.wait(state, Wait::Turn);
        }
        let node = || state.node.to_owned();
        let switch = |checked| Step::Switch {
            node: node(),
            from: state.version.unwrap_or_default().to_owned(),
            checked,
        };
        let look = policy.devices_known && policy.pods != PodsUsingDevices::Ignore;
        match (&state.users, policy.pods) {
            _ if !look => self.steps.push(switch(false)),
            (Users::Unknown, _) => return self.wait(state, Wait::Unknown),
            (Users::Pods(pods), PodsUsingDevices::Wait) if !pods.is_empty() => {
                return self.wait(state, using(pods));
            }
            _ if !state.fenced => self.steps.push(Step::Fence(node())),
            (Users::Pods(pods), _) if pods.is_empty() => self.steps.push(switch(true)),
            (Users::Pods(pods), _) => {
                self.evict(state, pods);
            }
        }
        *room -= costs;
        true
    }

    /// A node that is to be given back.
    fn end(&mut self, policy: &Policy<'_>, state: &RolloutNode<'_>) {
        let look = policy.devices_known && policy.pods != PodsUsingDevices::Ignore;
        let release = |checked| Step::Release { node: state.node.to_owned(), checked };
        match (&state.users, policy.pods) {
            _ if !look => self.steps.push(release(false)),
            (Users::Unknown, _) => drop(self.wait(state, Wait::Unknown)),
            (Users::Pods(pods), PodsUsingDevices::Wait) if !pods.is_empty() => {
                self.wait(state, using(pods));
                self.unfence(state);
            }
            _ if !state.fenced => self.steps.push(Step::Fence(state.node.to_owned())),
            (Users::Pods(pods), _) if pods.is_empty() => self.steps.push(release(true)),
            (Users::Pods(pods), _) => self.evict(state, pods),
        }
    }

    /// A fence that is of no use any more goes.
    fn unfence(&mut self, state: &RolloutNode<'_>) {
        if state.fenced && state.is_settled() && !state.reserved {
            self.steps.push(Step::Unfence(state.node.to_owned()));
        }
    }

    fn evict(&mut self, state: &RolloutNode<'_>, pods: &[Pod]) {
        let staying = pods.iter().filter(|pod| !pod.leaving);
        self.steps.extend(staying.map(|pod| Step::Evict { node: state.node.to_owned(), pod: pod.clone() }));
        self.wait(state, using(pods));
    }

    fn wait(&mut self, state: &RolloutNode<'_>, why: Wait) -> bool {
        self.waiting.push((state.node.to_owned(), why));
        false
    }
}

fn using(pods: &[Pod]) -> Wait {
    let first = pods.iter().min().map(|pod| format!("{}/{}", pod.namespace, pod.name));
    Wait::Pods(first.unwrap_or_default(), pods.len())
}

#[cfg(test)]
mod tests;
