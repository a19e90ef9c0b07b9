//! TLS: exporters and scheduler serve what the cluster's profile has, and refuse everything else.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::fixture::Fixture;
use crate::need::Need::{Exec, Kind, Operator, SchedulerObject};
use crate::object::value;
use crate::operator::of_set;
use crate::spec::{Result, Spec};
use crate::tls::profile::Profile;

/// The kind of the profile.
pub(super) const PROFILES: &str = "apiservers.config.openshift.io";
/// The port of kube-scheduler, which every image of the scheduler has.
const SCHEDULER_PORT: u16 = 10259;

pub(super) fn specs() -> Vec<Spec> {
    let exporters = [
        Spec::new(
            "88380",
            0,
            "the exporters are told what the cluster's TLS profile has",
            exporters_are_told,
        ),
        Spec::new("88381", 0, "the exporters serve what the cluster's TLS profile has", exporters_serve),
        Spec::new(
            "88382",
            0,
            "the exporters refuse versions and suites outside of the profile",
            exporters_refuse,
        ),
    ];
    let exporters = exporters.into_iter().map(|spec| spec.needs([Kind(PROFILES), Operator, Exec]));
    let schedulers = [
        Spec::new(
            "tls-scheduler-serves",
            1,
            "the scheduler serves what the TLS profile has",
            scheduler_serves,
        ),
        Spec::new(
            "tls-scheduler-refuses",
            1,
            "the scheduler refuses versions and suites outside of the profile",
            scheduler_refuses,
        ),
    ];
    let schedulers = schedulers.into_iter().map(|spec| spec.needs([Kind(PROFILES), SchedulerObject, Exec]));
    exporters.chain(schedulers).collect()
}

async fn exporters_are_told(f: Fixture) -> Result {
    follow(&f, &f.tls_profile().await?).await
}

async fn exporters_serve(f: Fixture) -> Result {
    serve(&f, &f.tls_profile().await?).await
}

async fn exporters_refuse(f: Fixture) -> Result {
    let profile = f.tls_profile().await?;
    for (pod, port) in exporters(&f).await? {
        f.refuses_others(&pod, port, &profile).await?;
    }
    Ok(())
}

async fn scheduler_serves(f: Fixture) -> Result {
    let profile = f.tls_profile().await?;
    for pod in f.pods_of(&f.scheduler_deployment().await?).await? {
        f.keeps_profile(&pod, SCHEDULER_PORT, &profile).await?;
    }
    Ok(())
}

async fn scheduler_refuses(f: Fixture) -> Result {
    let profile = f.tls_profile().await?;
    for pod in f.pods_of(&f.scheduler_deployment().await?).await? {
        f.refuses_others(&pod, SCHEDULER_PORT, &profile).await?;
    }
    Ok(())
}

/// Waits until all exporters have been told so, and no older pod is left.
pub(super) async fn follow(f: &Fixture, profile: &Profile) -> Result {
    for set in f.exporter_sets().await? {
        let what = format!("the pods of DaemonSet {} are told the TLS profile", set.name);
        f.until_object(&set, &what, |found| match told(&value(found.ok_or("it is not there")?)) {
            Ok(told) if profile.is_kept_by(&told) => Ok(()),
            Ok(told) => Err(format!("they are told {told:?}, not {profile:?}")),
            Err(error) => Err(format!("{error:#}")),
        })
        .await?;
        f.complete(&set).await?;
    }
    Ok(())
}

/// Fails unless an exporter of each DaemonSet serves what the profile has.
pub(super) async fn serve(f: &Fixture, profile: &Profile) -> Result {
    for (pod, port) in exporters(f).await? {
        f.keeps_profile(&pod, port, profile).await?;
    }
    Ok(())
}

/// The profile in the flags of a DaemonSet.
fn told(set: &Value) -> Result<Profile> {
    let containers = set["spec"]["template"]["spec"]["containers"].as_array().map(Vec::as_slice);
    let flags = containers.unwrap_or_default().iter().flat_map(|container| container["args"].as_array());
    let flag = |name: &str| {
        let mut values = flags.clone().flatten().filter_map(|flag| flag.as_str()?.strip_prefix(name));
        values.next().with_context(|| format!("there is no flag {name}"))
    };
    // No suites are chosen where there is no choice.
    let suites = flag("--metrics-tls-cipher-suites=").unwrap_or_default();
    Profile::of_flags(flag("--metrics-tls-min-version=")?, suites)
}

/// A ready exporter of each DaemonSet that has pods, and the port of its metrics.
async fn exporters(f: &Fixture) -> Result<Vec<(Arc<Pod>, u16)>> {
    let mut found = Vec::new();
    for set in f.exporter_sets().await? {
        if f.complete(&set).await? == 0 {
            continue;
        }
        let what = format!("DaemonSet {} has a pod with a port for metrics", set.name);
        found.push(
            f.until(&what, |state| {
                let pod = of_set(state, &set).into_iter().next().ok_or("it has no pod")?;
                let port = metrics_port(&pod).ok_or("its pod has no such port")?;
                Ok((pod, port))
            })
            .await?,
        );
    }
    ensure!(!found.is_empty(), "no DaemonSet of exporters has a pod");
    Ok(found)
}

fn metrics_port(pod: &Pod) -> Option<u16> {
    let containers = &pod.spec.as_ref()?.containers;
    let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref().is_some_and(|name| name.contains("metrics")))?;
    u16::try_from(port.container_port).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flags_of_exporters_are_a_profile() {
        let set = |flags: &[&str]| {
            let containers = json!([{ "name": "helper" }, { "args": flags }]);
            told(&json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
        };
        let (version, suites) =
            ("--metrics-tls-min-version=VersionTLS13", "--metrics-tls-cipher-suites=AES128-SHA");
        let profile = set(&["-v=2", version, suites]).unwrap();
        assert_eq!((profile.min_version, profile.suites), (0x0304, vec![0x002f]));
        assert!(set(&[version]).unwrap().suites.is_empty());
        assert!(set(&[suites]).is_err());
    }
}
