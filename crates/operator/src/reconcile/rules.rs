//! The rules of the controllers, as the controller runtime calls them.
//!
//! In: a controller. Out: its functions, and the user's object that it works for. Never: a rule of its own.

use std::collections::{BTreeMap, BTreeSet};

use api::numaresources::keys;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use objects::ObjectKind;
use runtime::events::Subject;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::Outcome;
use crate::cluster_state::ClusterState;
use crate::desired::{Controller, Desired};
use crate::kubeletconfig::Warning;
use crate::{kubeletconfig, numaresourcesoperator, numaresourcesscheduler};

/// A controller without its I/O.
#[derive(Clone, Copy)]
pub struct Rules {
    /// The kind and the name of the user's object that it works for.
    pub works_for: (&'static str, &'static str),
    /// The same object as the subject of events, if it exists.
    pub subject: fn(&ClusterState) -> Option<Subject>,
    /// Whether that object is paused.
    pub is_paused: fn(&ClusterState) -> bool,
    /// The desired objects.
    pub desired: fn(&ClusterState) -> Desired,
    /// The status of users' objects, as it is and as it should be.
    pub status: fn(&ClusterState, &Outcome, Timestamp) -> Vec<StatusUpdate>,
    /// Warnings, for the log and events.
    pub warnings: fn(&ClusterState) -> Vec<Warning>,
    /// Controllers whose failures stand in this one's status.
    pub reports_errors_of: &'static [Controller],
}

/// The status of one user's object.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    /// The object.
    pub subject: Subject,
    /// Its kind.
    pub kind: ObjectKind,
    /// The status as it is.
    pub old: Value,
    /// The status as it should be.
    pub new: Value,
}

impl Rules {
    /// The rules of a controller.
    #[must_use]
    pub fn of(controller: Controller) -> Self {
        match controller {
            Controller::NumaResourcesOperator => numaresourcesoperator::RULES,
            Controller::NumaResourcesScheduler => numaresourcesscheduler::RULES,
            Controller::KubeletConfig => kubeletconfig::RULES,
        }
    }

    /// The desired objects. An unreadable request leaves everything as it is.
    #[must_use]
    pub fn desired(&self, cluster: &ClusterState) -> Desired {
        let (kind, name) = self.works_for;
        if cluster.unreadable.contains_key(&(kind, name.to_owned())) {
            return Desired::Keep;
        }
        (self.desired)(cluster)
    }
}

impl StatusUpdate {
    /// The updates of objects, which have a `status`, to new ones by name; none for a paused object.
    pub fn all<K: Resource<DynamicType = ()>, S: Serialize>(
        objects: &BTreeMap<String, K>,
        status: fn(&K) -> &S,
        new: Vec<(String, S)>,
    ) -> Vec<Self> {
        let update = |(name, new): (String, S)| {
            let object = objects.get(&name).filter(|object| !is_paused(*object))?;
            let [old, new] = [status(object), &new].map(|status| serde_json::to_value(status).ok());
            Some(Self { subject: Subject::of(object), kind: ObjectKind::of::<K>(), old: old?, new: new? })
        };
        new.into_iter().filter_map(update).collect()
    }

    /// The conditions of a status.
    #[must_use]
    pub fn conditions(status: &Value) -> Vec<Condition> {
        Vec::deserialize(&status["conditions"]).unwrap_or_default()
    }
}

/// Whether a user's object is paused: everything is left as it is.
#[must_use]
pub fn is_paused<K: Resource>(object: &K) -> bool {
    let annotations = object.meta().annotations.as_ref();
    annotations.and_then(|all| all.get(keys::PAUSE)).is_some_and(|pause| pause == keys::ENABLED)
}

/// The UIDs of all users' objects.
#[must_use]
pub fn owners(cluster: &ClusterState) -> BTreeSet<String> {
    let operators = cluster.operators.values().map(|operator| &operator.metadata);
    let schedulers = cluster.schedulers.values().map(|scheduler| &scheduler.metadata);
    let unreadable = cluster.unreadable.values().map(|one| one.uid.clone());
    operators.chain(schedulers).filter_map(|metadata| metadata.uid.clone()).chain(unreadable).collect()
}

#[cfg(test)]
mod tests {
    use api::numaresources::operator;

    use super::*;
    use crate::cluster_state::Unreadable;

    #[test]
    fn an_unreadable_request_changes_nothing() {
        let options = crate::compat::render::Options::default();
        let mut cluster =
            crate::compat::render::sample_cluster(deployer::platform::Platform::Kubernetes, None, &options);
        let odd = Unreadable { uid: "odd".to_owned(), reason: "spec".to_owned() };
        cluster.operators.clear();
        cluster.unreadable.insert((operator::KIND, keys::OPERATOR.to_owned()), odd);
        let wants =
            |controller| Rules { desired: |_| Desired::Nothing, ..Rules::of(controller) }.desired(&cluster);
        assert_eq!(wants(Controller::NumaResourcesOperator), Desired::Keep);
        assert_eq!(wants(Controller::KubeletConfig), Desired::Keep);
        assert_eq!(wants(Controller::NumaResourcesScheduler), Desired::Nothing);
        assert!(owners(&cluster).contains("odd"));
    }
}
