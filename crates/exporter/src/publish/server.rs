//! The calls. Each is one request and one answer; nothing is tried twice here.

use std::time::Duration;

use api::nrt::NodeResourceTopology;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use runtime::client::{code, is_not_found};
use serde_json::json;

use super::Held;
use super::access::Reading;
use crate::object::Write;

/// Who we are in `managedFields`.
const FIELD_MANAGER: &str = "tholepin-exporter";
/// What a server that is busy wants us to wait at least; that it says in a header which the client does not show us.
const BUSY: Duration = Duration::from_secs(1);
/// More than this it cannot want.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Our object on the API server.
pub(super) struct Server {
    objects: Api<NodeResourceTopology>,
    name: String,
}

impl Server {
    pub(super) fn new(client: kube::Client, name: &str) -> Self {
        Self { objects: Api::all(client), name: name.to_owned() }
    }

    /// The object as it is.
    pub(super) async fn read(&self, reading: Reading) -> kube::Result<Held> {
        let found = match reading {
            Reading::Get => self.objects.get_opt(&self.name).await,
            Reading::EmptyPatch => {
                let patched =
                    self.objects.patch(&self.name, &patching(false), &Patch::Merge(json!({}))).await;
                match patched {
                    Err(error) if is_not_found(&error) => Ok(None),
                    patched => patched.map(Some),
                }
            }
        };
        match found {
            // Somebody wrote something into it that we cannot even read: as good as an object that says nothing.
            Err(kube::Error::SerdeError(_)) if reading == Reading::Get => {
                let metadata = self.objects.get_metadata_opt(&self.name).await?.map(|object| object.metadata);
                let bare = |metadata| NodeResourceTopology { metadata, ..NodeResourceTopology::default() };
                Ok(metadata.map(bare).map_or(Held::Absent, Held::object))
            }
            found => Ok(found?.map_or(Held::Absent, Held::object)),
        }
    }

    /// Writes, and gives what the object is then.
    pub(super) async fn write(&self, write: &Write) -> kube::Result<NodeResourceTopology> {
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

/// How long a server that said no wants to be left alone.
pub(super) fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let said = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let said = Duration::from_secs(said.into()).min(BUSY_MAX);
    if code(error) == Some(429) { Some(said.max(BUSY)) } else { (!said.is_zero()).then_some(said) }
}
