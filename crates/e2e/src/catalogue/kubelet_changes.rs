//! Changes of kubelets and of the cluster's TLS profile, which the stack follows: nodes reboot.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DeleteParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use topology::policy::{Policy, Scope};
use topology::resource::ResourceName;

use super::node_groups::{set_of, with_group};
use super::tls_compliance::{PROFILES, follow, serve};
use crate::amounts::Amounts;
use crate::facts::NodeFacts;
use crate::fixture::Fixture;
use crate::machines::{self, PoolStatus};
use crate::need::Need::{
    self, Aligning, Exec, Kind, Movable, Operator, Reconfigurable, Scheduler, SchedulerObject,
};
use crate::object::value;
use crate::operator::{AVAILABLE, GROUPS, uids};
use crate::platform::{self, Platform};
use crate::settled;
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The pool to which a node moves.
const POOL: &str = "e2e-moved";
/// Fields of KubeletConfigs.
const SCOPE: &str = "/spec/kubeletConfig/topologyManagerScope";
const POLICY: &str = "/spec/kubeletConfig/topologyManagerPolicy";

pub(super) fn specs() -> Vec<Spec> {
    let specs = [
        Spec::new("47585", 2, "exporters and scheduler follow another scope of the kubelets", scope)
            .needs([Scheduler]),
        Spec::new(
            "75354",
            2,
            "the scheduler follows another policy of the kubelets without a restart",
            policy,
        )
        .labels(&["unsched", "schedrst", "feature:schedattrwatch"])
        .needs([Scheduler, SchedulerObject]),
        Spec::new(
            "84316",
            2,
            "a node that moves to a pool with its own KubeletConfig is reported with that",
            moved,
        )
        .needs([Movable]),
        Spec::new("88383", 2, "the exporters follow another TLS profile of the cluster", tls_profile)
            .labels(&["feature:tlscompliance"])
            .needs([Kind(PROFILES), Exec]),
    ];
    let labels = ["disruptive", "openshift", "reboot_required", "slow"];
    let needs = [Need::Platform(Platform::OpenShift), Operator, Reconfigurable, Aligning(1)];
    specs.into_iter().map(|spec| spec.labels(&labels).needs(needs)).collect()
}

/// A pool and its KubeletConfig, as they were at the beginning.
struct Kubelets<'f> {
    fixture: &'f Fixture,
    pool: String,
    before: PoolStatus,
    config: Target,
    object: Value,
}

impl<'f> Kubelets<'f> {
    async fn of(fixture: &'f Fixture) -> Result<Self> {
        let nodes: Vec<&NodeFacts> = fixture.nodes().iter().collect();
        let (pool, config) = fixture.facts().reconfigurable(&nodes).map_err(Skip)?;
        let (pool, config) = (pool.name.clone(), machines::kubelet_config(config));
        let (before, object) = (fixture.told(&pool).await?, fixture.read(&config).await?);
        Ok(Self { fixture, pool, before, config, object })
    }

    /// Sets a field, and waits until all machines have it.
    async fn set(&self, pointer: &str, value: &str) -> Result {
        self.fixture.set(&self.config, pointer, Some(json!(value))).await?;
        self.fixture.rolled_out(&self.pool, |told| told.config != self.before.config).await
    }

    /// Sets a field to what it was, and waits until all machines have it.
    async fn put_back(&self, pointer: &str) -> Result {
        self.fixture.set(&self.config, pointer, self.object.pointer(pointer).cloned()).await?;
        self.fixture.rolled_out(&self.pool, |told| told.config == self.before.config).await
    }
}

/// Waits until the report of a node has this policy and scope.
async fn reported(f: &Fixture, node: &str, policy: Policy, scope: Scope) -> Result {
    let what = format!("the report of node {node} says {} and {}", policy.as_str(), scope.as_str());
    f.until(&what, |state| {
        let now = settled::settled(state, node)?.rules;
        let is_said = (now.policy, now.scope) == (policy, scope);
        if is_said {
            Ok(())
        } else {
            Err(format!("it says {} and {}", now.policy.as_str(), now.scope.as_str()))
        }
    })
    .await
}

/// Waits until the configuration of a pool's exporters has a scope, and all of them have it.
async fn configured(f: &Fixture, pool: &str, scope: Scope) -> Result {
    let set = set_of(f, pool).await?;
    let map = Target::of(&ApiResource::erase::<ConfigMap>(&()), &set.namespace, &set.name);
    let wanted = format!("topologyManagerScope: {}", scope.as_str());
    f.until_object(&map, &format!("ConfigMap {} says {wanted}", map.name), |found| {
        let data = value(found.ok_or("it is not there")?)["data"].to_string();
        if data.contains(&wanted) { Ok(()) } else { Err(format!("it says {data}")) }
    })
    .await?;
    f.complete(&set).await?;
    Ok(())
}

fn other(scope: Scope) -> Scope {
    match scope {
        Scope::Container => Scope::Pod,
        Scope::Pod => Scope::Container,
    }
}

async fn scope(f: Fixture) -> Result {
    let kubelets = Kubelets::of(&f).await?;
    let (before, after) = (f.scope(), other(f.scope()));
    kubelets.set(SCOPE, after.as_str()).await?;
    configured(&f, &kubelets.pool, after).await?;
    for node in f.nodes() {
        reported(&f, &node.name, node.rules().policy, after).await?;
    }
    let target = &f.target()?.name;
    let free = f.free(target).await?;
    let pod = f.create(f.pod("p").among(&[target]).guaranteed(&f.amounts("1 100Mi")?)).await?;
    f.runs_on(&pod, target).await?;
    f.accounted(target, &free, std::slice::from_ref(&pod)).await?;
    f.delete(&pod).await?;
    kubelets.put_back(SCOPE).await?;
    if kubelets.object.pointer(SCOPE).is_some() {
        configured(&f, &kubelets.pool, before).await?;
    }
    Ok(())
}

async fn policy(f: Fixture) -> Result {
    let kubelets = Kubelets::of(&f).await?;
    kubelets.set(POLICY, Policy::None.as_str()).await?;
    for node in f.nodes() {
        reported(&f, &node.name, Policy::None, node.rules().scope).await?;
    }
    restart_scheduler(&f).await?;
    kubelets.put_back(POLICY).await?;
    for node in f.nodes() {
        reported(&f, &node.name, node.rules().policy, node.rules().scope).await?;
    }
    let largest = f.nodes().iter().map(NodeFacts::most_cpus);
    let cpus = largest.max().unwrap_or_default() * 3 / 2 / ResourceName::CPU.base_units();
    let cpus = cpus / f.facts().scale().cpus * f.facts().scale().cpus;
    let plan = f.pod("p").guaranteed(&Amounts::cpu_and_memory(cpus, 100 << 20));
    for pod in f.deployment(plan, 1).await?.pods().await? {
        f.cannot_align(&pod).await?;
    }
    f.untouched().await
}

/// Deletes the scheduler's pods, and waits for others.
async fn restart_scheduler(f: &Fixture) -> Result {
    let deployment = f.scheduler_deployment().await?;
    let pods =
        Api::<k8s_openapi::api::core::v1::Pod>::namespaced(f.cluster().client.clone(), &deployment.namespace);
    let old = f.pods_of(&deployment).await?;
    let uids = uids(&old);
    for pod in &old {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    f.until("the scheduler's pods are gone", |state| {
        let mut left = state.pods.values().filter(|pod| uids.contains(&pod.metadata.uid));
        left.next().map_or(Ok(()), |pod| Err(format!("pod {} is there", pod.name_any())))
    })
    .await?;
    f.pods_of(&deployment).await?;
    Ok(())
}

async fn moved(f: Fixture) -> Result {
    let kubelets = Kubelets::of(&f).await?;
    let nodes: Vec<&NodeFacts> = f.nodes().iter().collect();
    let node = f.facts().movable(&nodes).map_err(Skip)?;
    let scope = other(node.rules().scope);
    let mut settings = kubelets.object["spec"]["kubeletConfig"].clone();
    settings["topologyManagerScope"] = scope.as_str().into();
    f.make_pool(POOL).await?;
    let config = f.make_kubelet_config(POOL, POOL, json!({ "kubeletConfig": settings })).await?;
    f.until_object(&config, "the KubeletConfig is accepted", |found| {
        let object = value(found.ok_or("it is not there")?);
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let last = conditions.last().ok_or("nothing is said about it")?;
        let is_good = last["type"] == "Success" && last["status"] == "True";
        if is_good { Ok(()) } else { Err(format!("it is said {last}")) }
    })
    .await?;
    f.move_to(POOL, &node.name).await?;
    let nro = f.nro()?;
    f.set(&nro, GROUPS, Some(json!(with_group(&f, json!({ "poolName": POOL })).await?))).await?;
    f.condition(&nro, AVAILABLE).await?;
    f.on_nodes(&set_of(&f, POOL).await?, &BTreeSet::from([node.name.clone()]), |_| true).await?;
    configured(&f, POOL, scope).await?;
    reported(&f, &node.name, node.rules().policy, scope).await
}

async fn tls_profile(f: Fixture) -> Result {
    let server = platform::config("APIServer", "apiservers");
    let field = "/spec/tlsSecurityProfile";
    let (before, stated) = (f.tls_profile().await?, f.read(&server).await?.pointer(field).cloned());
    let is_modern = stated.as_ref().is_some_and(|stated| stated["type"] == "Modern");
    let (name, empty) = if is_modern { ("Intermediate", "intermediate") } else { ("Modern", "modern") };
    let mut pools = Vec::new();
    for pool in &f.facts().pools {
        pools.push((pool.name.clone(), f.told(&pool.name).await?));
    }
    f.set(&server, field, Some(json!({ "type": name, empty: {} }))).await?;
    for (pool, told) in &pools {
        f.rolled_out(pool, |now| now.config != told.config).await?;
    }
    let profile = f.tls_profile().await?;
    ensure!(profile != before, "the profile {name} is no other");
    follow(&f, &profile).await?;
    serve(&f, &profile).await?;
    f.set(&server, field, stated).await?;
    for (pool, told) in &pools {
        f.rolled_out(pool, |now| now.config == told.config).await?;
    }
    follow(&f, &before).await.context("after the profile was put back")
}
