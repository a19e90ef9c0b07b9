//! Prepares claims on this node, and gives them back.
//!
//! In: claims the kubelet asks about, their objects at the API server, the inventory. Out: a file for each, which is
//! also all that a restart needs to know. Never: a change of a prepared claim, or a device in two claims.

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

use super::claim_file::{self, AllocatedDevice, ClaimName, ClaimRecord};
use super::metrics::Metrics;
use crate::allocate::shorten;
use crate::inventory::Feed;

/// The driver that answers the kubelet's calls.
pub struct Claims {
    /// The driver's name.
    pub driver: String,
    /// This node's name, which is also its pool's.
    pub node: String,
    /// The kind of devices in files for claims.
    pub kind: Kind,
    /// The folder of those files.
    pub cdi_dir: PathBuf,
    /// The devices of the node.
    pub feed: Feed,
    /// A client of the API server, to read claims.
    pub client: Client,
    /// How long the file of a deleted claim keeps its devices. The pod may have been deleted by force while its
    /// containers still end. After that time, the file is left over from a kubelet that forgot the claim.
    pub orphaned_after: Duration,
    /// When claims with files were first found deleted, by UID. The lock also serialises calls: the kubelet may ask for
    /// several pods at once.
    pub gone: Mutex<BTreeMap<String, Instant>>,
    /// The metrics.
    pub metrics: Metrics,
}

impl Driver for Claims {
    async fn prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
        let prepared = self.try_prepare(claim).await;
        self.metrics.prepared(prepared.is_ok());
        let (claim, namespace) = (shorten(&claim.name), shorten(&claim.namespace));
        match &prepared {
            Ok(devices) => info!(claim, namespace, devices = devices.len(), "prepared a claim"),
            Err(reason) => warn!(claim, namespace, reason, "cannot prepare a claim"),
        }
        prepared
    }

    async fn unprepare(&self, claim: &wire::Claim) -> Result<(), String> {
        let unprepared = self.try_unprepare(claim).await;
        self.metrics.unprepared(unprepared.is_ok());
        let (claim, namespace) = (shorten(&claim.name), shorten(&claim.namespace));
        match &unprepared {
            Ok(true) => info!(claim, namespace, "unprepared a claim"),
            // Nothing was left to give back.
            Ok(false) => {}
            Err(reason) => warn!(claim, namespace, reason, "cannot unprepare a claim"),
        }
        unprepared.map(drop)
    }
}

impl Claims {
    /// Removes the claim's file; true if there was one.
    async fn try_unprepare(&self, claim: &wire::Claim) -> Result<bool, String> {
        let mut gone = self.gone.lock().await;
        let name = ClaimName::try_from(claim)?;
        gone.remove(&name.uid);
        let file = self.file(&name.uid)?;
        file::remove(&self.cdi_dir, &file).map_err(|error| error.to_string())
    }

    async fn try_prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
        let mut gone = self.gone.lock().await;
        let name = ClaimName::try_from(claim)?;
        let object = self.object(&name.namespace, &name.name).await?;
        let object = object.ok_or_else(|| format!("claim {name} no longer exists"))?;
        let results = claim_file::results(&name, &object, &self.driver, &self.node)?;
        if results.is_empty() {
            return Err(format!("claim {name} has no device of {}", self.driver));
        }
        let answer = claim_file::prepared_devices(&name, &results, &self.kind)?;
        let file = self.file(&name.uid)?;
        // A prepared claim stays as it was written, whatever has become of its devices since.
        let has =
            |record: ClaimRecord| results.iter().all(|result| record.devices.contains_key(&result.device));
        if self.record(&file).is_some_and(has) {
            return Ok(answer);
        }
        let inventory = self.feed.borrow().clone();
        let allocated = claim_file::devices(&name, &results, &inventory)?;
        self.ensure_exclusive(&name, &allocated, &mut gone).await?;
        let spec = claim_file::spec(&name, &allocated, &self.kind, &inventory);
        file::write(&self.cdi_dir, &file, &spec).map_err(|error| error.to_string())?;
        Ok(answer)
    }

    /// The claim's object; none when it does not exist.
    async fn object(&self, namespace: &str, name: &str) -> Result<Option<ResourceClaim>, String> {
        let api = Api::<ResourceClaim>::namespaced(self.client.clone(), namespace);
        api.get_opt(name)
            .await
            .map_err(|error| format!("reading claim {namespace}/{name}: {}", brief(&error)))
    }

    /// Checks that no other claim has one of the devices, by whatever name. Removes the files of claims deleted long
    /// ago. Cost: reads every claim's file in the folder, and the objects of those that share a device.
    async fn ensure_exclusive(
        &self,
        name: &ClaimName,
        allocated: &[AllocatedDevice<'_>],
        gone: &mut BTreeMap<String, Instant>,
    ) -> Result<(), String> {
        // Not for administrative access, which may share a device, nor for a device that is allocated in shares.
        let alone = |r: &DeviceRequestAllocationResult| r.admin_access != Some(true) && r.share_id.is_none();
        for uid in file::transient_ids(&self.cdi_dir, &self.kind).map_err(|error| error.to_string())? {
            let file = self.file(&uid)?;
            let Some(record) = self.record(&file).filter(|_| uid != name.uid) else { continue };
            let wanted = allocated.iter().filter(|(result, _)| alone(result));
            let common: Vec<_> = wanted
                .filter_map(|(result, source)| Some((&*result.device, record.name_of(*source)?)))
                .collect();
            let (Some((device, _)), Some((namespace, other))) =
                (common.first(), record.claim.split_once('/'))
            else {
                continue;
            };
            let object = self.object(namespace, other).await?;
            let other = ClaimName { namespace: namespace.to_owned(), name: other.to_owned(), uid };
            if let Some(object) = object.filter(|object| object.metadata.uid.as_deref() == Some(&other.uid)) {
                gone.remove(&other.uid);
                let results =
                    claim_file::results(&other, &object, &self.driver, &self.node).unwrap_or_default();
                let holds = |held: &str| results.iter().any(|result| alone(result) && result.device == held);
                if let Some((device, _)) = common.iter().find(|(_, held)| holds(held)) {
                    return Err(format!("device {device} of claim {name} is still held by claim {other}"));
                }
                continue;
            }
            let since = *gone.entry(other.uid.clone()).or_insert_with(Instant::now);
            if since.elapsed() < self.orphaned_after {
                return Err(format!(
                    "device {device} of claim {name} is still held by claim {other}, which was deleted; its pod may \
                     be ending"
                ));
            }
            warn!(claim = %other, uid = other.uid, "removing the file of a deleted claim");
            file::remove(&self.cdi_dir, &file).map_err(|error| error.to_string())?;
            gone.remove(&other.uid);
        }
        Ok(())
    }

    fn file(&self, uid: &str) -> Result<FileName, String> {
        FileName::transient(&self.kind, uid).map_err(|error| error.to_string())
    }

    fn record(&self, file: &FileName) -> Option<ClaimRecord> {
        let path = self.cdi_dir.join(file.as_str());
        let spec = file::read(&path).ok().filter(|spec| cdi::check::refusal(spec).is_none())?;
        claim_file::record(&spec)
    }
}
