//! The calls to the API server. Each is one request and one answer, without retries.

use std::time::Duration;

use api::nrt::NodeResourceTopology;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use runtime::client::{code, is_not_found};
use serde_json::json;

use super::StoredObject;
use super::access::ReadMethod;
use crate::object::Write;

/// The name of the exporter in `managedFields`.
const FIELD_MANAGER: &str = "tholepin-exporter";
/// The least pause after a server said that it is busy. The header with its own wish is not available from the client.
const BUSY: Duration = Duration::from_secs(1);
/// The longest pause that a server's answer can cause.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// One object on the API server.
pub struct Server {
    objects: Api<NodeResourceTopology>,
    name: String,
}

impl Server {
    /// The object of this name.
    #[must_use]
    pub fn new(client: kube::Client, name: &str) -> Self {
        Self { objects: Api::all(client), name: name.to_owned() }
    }

    /// Reads the object.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn get(&self) -> kube::Result<StoredObject> {
        self.read(ReadMethod::Get).await
    }

    /// Reads the object in this way.
    pub(super) async fn read(&self, reading: ReadMethod) -> kube::Result<StoredObject> {
        let found = match reading {
            ReadMethod::Get => self.objects.get_opt(&self.name).await,
            ReadMethod::EmptyPatch => {
                let patched =
                    self.objects.patch(&self.name, &patching(false), &Patch::Merge(json!({}))).await;
                match patched {
                    Err(error) if is_not_found(&error) => Ok(None),
                    patched => patched.map(Some),
                }
            }
        };
        match found {
            // Another client wrote content that cannot be parsed: the object is treated as empty.
            Err(kube::Error::SerdeError(_)) if reading == ReadMethod::Get => {
                let metadata = self.objects.get_metadata_opt(&self.name).await?.map(|object| object.metadata);
                let bare = |metadata| NodeResourceTopology { metadata, ..NodeResourceTopology::default() };
                Ok(metadata.map(bare).map_or(StoredObject::Absent, StoredObject::present))
            }
            found => Ok(found?.map_or(StoredObject::Absent, StoredObject::present)),
        }
    }

    /// Writes, and returns the object as stored.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn write(&self, write: &Write) -> kube::Result<NodeResourceTopology> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match write {
            Write::Create(object) => self.objects.create(&params, object).await,
            Write::Replace(object) => self.objects.replace(&self.name, &params, object).await,
            Write::Patch(change) => {
                let patch = match &change.edit {
                    Some(edit) => Patch::Json(edit.clone()),
                    None => Patch::Merge(&change.merge),
                };
                self.objects.patch(&self.name, &patching(false), &patch).await
            }
            Write::Apply(object) => {
                self.objects.patch(&self.name, &patching(true), &Patch::Apply(object)).await
            }
        }
    }
}

fn patching(force: bool) -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), force, ..PatchParams::default() }
}

/// The pause that a refusal asks for.
pub(super) fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let said = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let said = Duration::from_secs(said.into()).min(BUSY_MAX);
    if code(error) == Some(429) { Some(said.max(BUSY)) } else { (!said.is_zero()).then_some(said) }
}
