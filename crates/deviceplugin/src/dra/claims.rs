//! Makes claims ready on this node, and gives them back.
//!
//! In: claims the kubelet asks about, their objects at the API server, the inventory. Out: a file for each, which is also all that a restart needs to
//! know. Never: a claim that is ready changed, or a device in two claims' hands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cdi::{FileName, Kind, file};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use kube::{Api, Client};
use node::draplugin::{Driver, wire};
use runtime::client::brief;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::claim_file::{self, Given, Memory, Name};
use super::metrics::Metrics;
use crate::allocate::shown;
use crate::inventory::Feed;

/// The driver behind the kubelet's calls.
pub struct Claims {
    /// Its name.
    pub driver: String,
    /// This node, whose name is the pool's.
    pub node: String,
    /// The kind of devices in files for claims.
    pub kind: Kind,
    /// The folder of those files.
    pub cdi_dir: PathBuf,
    /// The devices.
    pub feed: Feed,
    /// For reading claims.
    pub client: Client,
    /// How long the file of a claim that is gone from the API server keeps its devices: the pod may have been deleted by force, and its containers
    /// still end. After that it was left over from a kubelet that forgot it.
    pub left_over: Duration,
    /// Since when claims with files are known to be gone, by UID. Also lets one call in at a time: the kubelet may ask for several pods at once.
    pub gone: Mutex<BTreeMap<String, Instant>>,
    /// Where it is counted what became of claims.
    pub metrics: Metrics,
}

impl Driver for Claims {
    async fn prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
        let prepared = self.try_prepare(claim).await;
        self.metrics.prepared(prepared.is_ok());
        let (claim, namespace) = (shown(&claim.name), shown(&claim.namespace));
        match &prepared {
            Ok(devices) => info!(claim, namespace, devices = devices.len(), "claim is ready"),
            Err(reason) => warn!(claim, namespace, reason, "cannot make a claim ready"),
        }
        prepared
    }

    async fn unprepare(&self, claim: &wire::Claim) -> Result<(), String> {
        let unprepared = self.try_unprepare(claim).await;
        self.metrics.unprepared(unprepared.is_ok());
        let (claim, namespace) = (shown(&claim.name), shown(&claim.namespace));
        match &unprepared {
            Ok(true) => info!(claim, namespace, "claim is given back"),
            // It was given back before.
            Ok(false) => {}
            Err(reason) => warn!(claim, namespace, reason, "cannot give a claim back"),
        }
        unprepared.map(drop)
    }
}

impl Claims {
    /// Whether there was something to give back.
    async fn try_unprepare(&self, claim: &wire::Claim) -> Result<bool, String> {
        let mut gone = self.gone.lock().await;
        let name = Name::try_from(claim)?;
        gone.remove(&name.uid);
        let file = self.file(&name.uid)?;
        file::remove(&self.cdi_dir, &file).map_err(|error| error.to_string())
    }

    async fn try_prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
        let mut gone = self.gone.lock().await;
        let name = Name::try_from(claim)?;
        let object = self.object(&name.namespace, &name.name).await?;
        let object = object.ok_or_else(|| format!("claim {name} does not exist any more"))?;
        let results = claim_file::results(&name, &object, &self.driver, &self.node)?;
        if results.is_empty() {
            return Err(format!("claim {name} was given no device of {}", self.driver));
        }
        let answer = claim_file::answer(&name, &results, &self.kind)?;
        let file = self.file(&name.uid)?;
        // What running containers have stays, whatever has become of the devices since.
        let has = |memory: Memory| results.iter().all(|result| memory.devices.contains_key(&result.device));
        if self.memory(&file).is_some_and(has) {
            return Ok(answer);
        }
        let inventory = self.feed.borrow().clone();
        let given = claim_file::devices(&name, &results, &inventory)?;
        self.nobody_has(&name, &given, &mut gone).await?;
        let spec = claim_file::spec(&name, &given, &self.kind, &inventory);
        file::write(&self.cdi_dir, &file, &spec).map_err(|error| error.to_string())?;
        Ok(answer)
    }

    /// The claim's object, if it is there.
    async fn object(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, String> {
        let api = Api::<ResourceClaim>::namespaced(self.client.clone(), namespace);
        api.get_opt(name)
            .await
            .map_err(|error| format!("reading claim {namespace}/{name}: {}", brief(&error)))
    }

    /// Makes sure that no other claim has one of the devices, whatever it was called when the other got it.
    async fn nobody_has(
        &self,
        name: &Name,
        given: &[Given<'_>],
        gone: &mut BTreeMap<String, Instant>,
    ) -> Result<(), String> {
        // For looking after a device that others use, and of one that may be shared.
        let alone = |r: &DeviceRequestAllocationResult| r.admin_access != Some(true) && r.share_id.is_none();
        for uid in file::transient_ids(&self.cdi_dir, &self.kind).map_err(|error| error.to_string())? {
            let file = self.file(&uid)?;
            let Some(memory) = self.memory(&file).filter(|_| uid != name.uid) else { continue };
            let wanted = given.iter().filter(|(result, _)| alone(result));
            let common: Vec<_> = wanted
                .filter_map(|(result, source)| Some((&*result.device, memory.name_of(*source)?)))
                .collect();
            let (Some((device, _)), Some((namespace, other))) =
                (common.first(), memory.claim.split_once('/'))
            else {
                continue;
            };
            let object = self.object(namespace, other).await?;
            let other = Name { namespace: namespace.to_owned(), name: other.to_owned(), uid };
            if let Some(object) = object.filter(|object| object.metadata.uid.as_deref() == Some(&other.uid)) {
                gone.remove(&other.uid);
                let results =
                    claim_file::results(&other, &object, &self.driver, &self.node).unwrap_or_default();
                let holds = |held: &str| results.iter().any(|result| alone(result) && result.device == held);
                if let Some((device, _)) = common.iter().find(|(_, held)| holds(held)) {
                    return Err(format!(
                        "device {device} of claim {name} is in the hands of claim {other} still"
                    ));
                }
                continue;
            }
            let since = *gone.entry(other.uid.clone()).or_insert_with(Instant::now);
            if since.elapsed() < self.left_over {
                return Err(format!(
                    "device {device} of claim {name} is in the hands of claim {other} still, which is gone; its pod may be ending"
                ));
            }
            warn!(claim = %other, uid = other.uid, "removing the file of a claim that is gone");
            file::remove(&self.cdi_dir, &file).map_err(|error| error.to_string())?;
            gone.remove(&other.uid);
        }
        Ok(())
    }

    fn file(&self, uid: &str) -> Result<FileName, String> {
        FileName::transient(&self.kind, uid).map_err(|error| error.to_string())
    }

    fn memory(&self, file: &FileName) -> Option<Memory> {
        let path = self.cdi_dir.join(file.as_str());
        let spec = file::read(&path).ok().filter(|spec| cdi::check::refusal(spec).is_none())?;
        claim_file::memory(&spec)
    }
}
