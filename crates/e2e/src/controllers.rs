//! Deployments, DaemonSets and Jobs of a spec.
//!
//! In: a pod as a spec describes it. Out: a controller, and its pods. Never: pods of another controller: a label tells
//! them apart.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::cluster::NAMESPACE;
use crate::fixture::{Fixture, PodRef};
use crate::placement;
use crate::pods::PodPlan;
use crate::spec::Result;
use crate::undo::Target;

/// The label of a controller's pods.
const LABEL: &str = "e2e.tholepin.dev/controller";

/// A controller of a spec.
#[derive(Clone)]
pub struct Controller {
    fixture: Fixture,
    target: Target,
    /// How many pods it makes; `None` for a DaemonSet.
    replicas: Option<usize>,
}

impl Fixture {
    /// Creates a Deployment.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn deployment(&self, plan: PodPlan, replicas: usize) -> Result<Controller> {
        let spec = json!({ "replicas": replicas });
        self.controller(("apps/v1", "Deployment", "deployments"), spec, plan, Some(replicas)).await
    }

    /// Creates a Deployment whose old pods go before new ones come.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn recreated(&self, plan: PodPlan, replicas: usize) -> Result<Controller> {
        let spec = json!({ "replicas": replicas, "strategy": { "type": "Recreate" } });
        self.controller(("apps/v1", "Deployment", "deployments"), spec, plan, Some(replicas)).await
    }

    /// Creates a ReplicaSet.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn replica_set(&self, plan: PodPlan, replicas: usize) -> Result<Controller> {
        let spec = json!({ "replicas": replicas });
        self.controller(("apps/v1", "ReplicaSet", "replicasets"), spec, plan, Some(replicas)).await
    }

    /// Creates a DaemonSet.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn daemon_set(&self, plan: PodPlan) -> Result<Controller> {
        self.controller(("apps/v1", "DaemonSet", "daemonsets"), json!({}), plan, None).await
    }

    /// Creates a Job: so many pods at once, as many on one node as on another.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn spread_job(&self, plan: PodPlan, count: usize) -> Result<Controller> {
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { LABEL: plan.name() } },
        }]);
        let spread = serde_json::from_value(spread)?;
        let plan = plan.restart("Never").spec(|spec| spec.topology_spread_constraints = spread);
        let spec = json!({ "completions": count, "parallelism": count });
        self.controller(("batch/v1", "Job", "jobs"), spec, plan, Some(count)).await
    }

    async fn controller(
        &self,
        kind: (&str, &str, &str),
        mut spec: Value,
        plan: PodPlan,
        replicas: Option<usize>,
    ) -> Result<Controller> {
        let (name, template) = named(plan);
        // The API server writes that of a Job.
        if kind.1 != "Job" {
            spec["selector"] = json!({ "matchLabels": { LABEL: name } });
        }
        spec["template"] = serde_json::to_value(template)?;
        let target = Target::new(kind, NAMESPACE, &name);
        self.make(&target, json!({ "metadata": { "labels": {} }, "spec": spec })).await?;
        Ok(Controller { fixture: self.clone(), target, replicas })
    }
}

fn named(plan: PodPlan) -> (String, PodTemplateSpec) {
    let name = plan.name().to_owned();
    plan.template((LABEL, &name))
}

fn succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded")
}

impl Controller {
    /// Its pods, once there are as many as it was told to make.
    ///
    /// # Errors
    /// When they do not come in time.
    pub async fn pods(&self) -> Result<Vec<PodRef>> {
        self.count(self.replicas.unwrap_or(1)).await
    }

    /// Its pods, once there are so many.
    ///
    /// # Errors
    /// When they do not come in time.
    pub async fn count(&self, wanted: usize) -> Result<Vec<PodRef>> {
        let name = &self.target.name;
        self.fixture
            .until(&format!("{} {name} has {wanted} pods", self.target.kind), |state| {
                let pods = placement::labelled(state, LABEL, name);
                let count = pods.len();
                if count == wanted { Ok(pods) } else { Err(format!("it has {count}")) }
            })
            .await
    }

    /// Waits until so many of its pods run, and the others have been found unschedulable.
    ///
    /// # Errors
    /// When others run, or it takes too long.
    pub async fn fits(&self, wanted: usize) -> Result<()> {
        self.fixture.fitting(LABEL, &self.target.name, wanted, self.replicas.unwrap_or(wanted)).await
    }

    /// Waits until its pods are others than these, and all run.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn renewed(&self, old: &[PodRef]) -> Result<Vec<PodRef>> {
        let name = &self.target.name;
        self.fixture
            .until(&format!("{} {name} has new pods", self.target.kind), |state| {
                let pods = placement::labelled(state, LABEL, name);
                let is_new = |pod: &&PodRef| pod.find(state).is_some_and(|pod| placement::runs(pod));
                let new = pods.iter().filter(|pod| !old.contains(pod)).filter(is_new).count();
                if (new, pods.len()) == (old.len(), old.len()) {
                    return Ok(pods);
                }
                let waiting = pods.iter().find_map(|pod| pod.find(state).filter(|pod| !placement::runs(pod)));
                let why = waiting.map(|pod| placement::state_of(pod)).unwrap_or_default();
                Err(format!("{new} new ones of {} run; {why}", pods.len()))
            })
            .await
    }

    /// Waits until all pods of a Job have ended well.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn finished(&self) -> Result {
        let (name, wanted) = (&self.target.name, self.replicas.unwrap_or(1));
        self.fixture
            .until(&format!("{wanted} pods of {} {name} have ended", self.target.kind), |state| {
                let pods = placement::labelled(state, LABEL, name);
                let ended =
                    pods.iter().filter_map(|pod| pod.find(state)).filter(|pod| succeeded(pod)).count();
                if ended >= wanted { Ok(()) } else { Err(format!("{ended} of {}", pods.len())) }
            })
            .await
    }

    /// Deletes it, and waits until its pods are gone.
    ///
    /// # Errors
    /// When they stay.
    pub async fn delete(&self) -> Result {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let name = &self.target.name;
        self.target.api(&self.fixture.cluster().client).delete(name, &params).await?;
        let is_its = |pod: &Pod| pod.metadata.labels.as_ref().and_then(|all| all.get(LABEL)) == Some(name);
        self.fixture
            .until(&format!("the pods of {} {name} are gone", self.target.kind), |state| {
                match state.pods.values().filter(|pod| is_its(pod)).count() {
                    0 => Ok(()),
                    left => Err(format!("{left} are there")),
                }
            })
            .await
    }

    /// Whether a pod of a DaemonSet is for a node.
    #[must_use]
    pub fn is_for(&self, pod: &PodRef, node: &str) -> bool {
        let state = self.fixture.cluster().observer.now();
        let affinity = pod.find(&state).and_then(|pod| pod.spec.as_ref()?.affinity.clone()?.node_affinity);
        let terms =
            affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let mut fields = terms.iter().flat_map(|terms| &terms.node_selector_terms);
        fields.any(|term| {
            let fields = term.match_fields.iter().flatten();
            fields.flat_map(|field| field.values.iter().flatten()).any(|name| name == node)
        })
    }

    /// Waits until as many of its pods run as wanted, and there are no others.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn running(&self, count: usize) -> Result<Vec<PodRef>> {
        self.fixture.all_running(LABEL, &self.target.name, count).await
    }

    /// Its pods now, without those on their way out.
    #[must_use]
    pub fn now(&self) -> Vec<PodRef> {
        self.fixture.labelled(LABEL, &self.target.name)
    }

    /// Wants another number of pods.
    ///
    /// # Errors
    /// When it cannot be changed.
    pub async fn scale(&mut self, replicas: usize) -> Result {
        self.replicas = Some(replicas);
        self.patch(json!({ "spec": { "replicas": replicas } })).await
    }

    /// Wants other pods.
    ///
    /// # Errors
    /// When it cannot be changed.
    pub async fn update(&self, plan: PodPlan) -> Result {
        let (_, template) = plan.template((LABEL, &self.target.name));
        let patch = json!([{ "op": "replace", "path": "/spec/template", "value": template }]);
        let patch = Patch::<Value>::Json(serde_json::from_value(patch)?);
        let api = self.target.api(&self.fixture.cluster().client);
        api.patch(&self.target.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn patch(&self, patch: Value) -> Result {
        let api = self.target.api(&self.fixture.cluster().client);
        api.patch(&self.target.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}
