//! Makes claims ready on this node, and gives them back.
//!
//! In: claims the kubelet asks about, their objects at the API server, the inventory. Out: a file for each, which is also all that a restart needs to
//! know. Never: a claim that is ready changed, or a device in two claims' hands.

use std::path::PathBuf;

use cdi::{FileName, Kind, file};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use kube::{Api, Client};
use node::draplugin::{Driver, wire};
use runtime::client::brief;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::claim_file::{self, Memory, Name};
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
    /// The kubelet may ask for several pods at once.
    pub one_at_a_time: Mutex<()>,
}

impl Driver for Claims {
    async fn prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
        let prepared = self.try_prepare(claim).await;
        match &prepared {
            Ok(devices) => info!(
                claim = claim.name,
                namespace = claim.namespace,
                devices = devices.len(),
                "claim is ready"
            ),
            Err(reason) => {
                warn!(claim = claim.name, namespace = claim.namespace, reason, "cannot make a claim ready")
            }
        }
        prepared
    }

    async fn unprepare(&self, claim: &wire::Claim) -> Result<(), String> {
        let _one = self.one_at_a_time.lock().await;
        let name = Name::try_from(claim)?;
        let file = self.file(&name.uid)?;
        if file::remove(&self.cdi_dir, &file).map_err(|error| error.to_string())? {
            info!(claim = claim.name, namespace = claim.namespace, "claim is given back");
        }
        Ok(())
    }
}

impl Claims {
    async fn try_prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
        let _one = self.one_at_a_time.lock().await;
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
        if self.memory(&file).is_some_and(|memory| results.iter().all(|r| memory.devices.contains(&r.device)))
        {
            return Ok(answer);
        }
        self.nobody_has(&name, &results).await?;
        let inventory = self.feed.borrow().clone();
        let spec = claim_file::spec(&name, &results, &self.kind, &inventory)?;
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

    /// Makes sure that no other claim has one of the devices. A file of a claim that has lost its devices is left over from a kubelet that forgot
    /// it, and is removed.
    async fn nobody_has(
        &self,
        name: &Name,
        results: &[&DeviceRequestAllocationResult],
    ) -> Result<(), String> {
        let wanted = |memory: &Memory| {
            // For looking after a device that others use.
            let shared =
                |r: &DeviceRequestAllocationResult| r.admin_access == Some(true) || r.share_id.is_some();
            results
                .iter()
                .find(|r| !shared(r) && memory.devices.contains(&r.device))
                .map(|r| r.device.clone())
        };
        for uid in file::transient_ids(&self.cdi_dir, &self.kind).map_err(|error| error.to_string())? {
            let file = self.file(&uid)?;
            let Some(memory) = self.memory(&file).filter(|_| uid != name.uid) else { continue };
            let Some(device) = wanted(&memory) else { continue };
            let Some((namespace, other)) = memory.claim.split_once('/') else { continue };
            let other = Name { namespace: namespace.to_owned(), name: other.to_owned(), uid };
            let object = self.object(&other.namespace, &other.name).await?;
            let held = object
                .as_ref()
                .and_then(|object| claim_file::results(&other, object, &self.driver, &self.node).ok());
            let holds = held
                .is_some_and(|held| held.iter().any(|r| r.device == device && r.admin_access != Some(true)));
            if holds {
                return Err(format!(
                    "device {device} of claim {name} is in the hands of claim {other} still"
                ));
            }
            // One that is there for administration has no say, but keeps its file.
            if object.is_none_or(|object| object.metadata.uid.as_deref() != Some(&other.uid)) {
                warn!(claim = %other, uid = other.uid, "removing the file of a claim that is gone");
                file::remove(&self.cdi_dir, &file).map_err(|error| error.to_string())?;
            }
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
