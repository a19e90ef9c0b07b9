//! Deployments, DaemonSets and Jobs of a spec.
//!
//! In: a pod as a spec describes it. Out: a controller, and its pods. Never: pods of another controller: a label tells them
//! apart.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::api::{Patch, PatchParams};
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

    async fn controller(
        &self,
        (api_version, kind, plural): (&str, &str, &str),
        mut spec: Value,
        plan: PodPlan,
        replicas: Option<usize>,
    ) -> Result<Controller> {
        let (name, template) = named(plan);
        spec["selector"] = json!({ "matchLabels": { LABEL: name } });
        spec["template"] = serde_json::to_value(template)?;
        let [api_version, kind, plural] = [api_version, kind, plural].map(str::to_owned);
        let target = Target { api_version, kind, plural, namespace: NAMESPACE.to_owned(), name };
        self.make(&target, json!({ "metadata": { "labels": {} }, "spec": spec })).await?;
        Ok(Controller { fixture: self.clone(), target, replicas })
    }
}

fn named(plan: PodPlan) -> (String, PodTemplateSpec) {
    let name = plan.name().to_owned();
    plan.template((LABEL, &name))
}

impl Controller {
    /// Its pods, once there are as many as wanted.
    ///
    /// # Errors
    /// When they do not come in time.
    pub async fn pods(&self) -> Result<Vec<PodRef>> {
        let wanted = self.replicas.unwrap_or(1);
        let name = &self.target.name;
        self.fixture
            .until(&format!("{} {name} has {wanted} pods", self.target.kind), |state| {
                let pods = placement::labelled(state, LABEL, name);
                let count = pods.len();
                if self.replicas.map_or(count > 0, |wanted| count == wanted) {
                    return Ok(pods);
                }
                Err(format!("it has {count}"))
            })
            .await
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
