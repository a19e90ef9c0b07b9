//! Looks up the owner of the object: the UID of our Node or namespace; and the kubelet's version, from the same Node.
//!
//! In: the kind of owner, events that invalidate the answer. Out: [`OwnerInfo`]. Never: other fields of a Node.
//!
//! A Node's UID is read before the first write and every ten minutes. It is read again whenever the object was deleted
//! (the garbage collector does so when a node was replaced), and whenever the kubelet restarted (which is when nodes
//! are registered). A kubelet writes its version some seconds after its start, so an answer about a start is read
//! again after half a minute. It is read by `get`, or where only `list` is allowed by a list of that one name. Without
//! a Node nothing is published: an object without an owner would stay for ever.
//!
//! A namespace is not replaced under a running pod. Without permission to read it, the object is published without an
//! owner, as nfd-topology-updater does.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{GetParams, ListParams};
use kube::core::Request;
use runtime::client::{brief, is_forbidden, is_not_found};
use runtime::random::Random;
use serde::Deserialize;
use tracing::{debug, info};

use super::server_state::jittered;
use super::{Desired, Error};
use crate::object::Owner;
use crate::settings::OwnerKind;

/// How long a UID is cached.
const CACHED_FOR: Duration = Duration::from_secs(600);
/// How long it is kept when it could not be read again, or when the kubelet or the exporter has just started.
const RETRIED_AFTER: Duration = Duration::from_secs(30);

/// The owner and the kubelet's version.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnerInfo {
    pub(super) owner: Owner,
    /// The version of the node's kubelet, where the Node was read.
    pub(super) kubelet_version: Option<String>,
}

impl OwnerInfo {
    fn only(owner: Owner) -> Self {
        Self { owner, kubelet_version: None }
    }
}

/// The fields of a Node that are read.
#[derive(Deserialize)]
struct Node {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: Option<String>,
}

#[derive(Deserialize)]
struct Nodes {
    items: Vec<Node>,
}

/// Looks up the owner.
pub(super) struct OwnerLookup {
    kind: OwnerKind,
    node: String,
    namespace: Option<String>,
    client: kube::Client,
    namespaces: Api<Namespace>,
    known: Option<CachedOwner>,
    random: Random,
    logged: bool,
    /// There was no object at the last call.
    absent: bool,
}

/// An answer, and when it expires.
struct CachedOwner {
    info: OwnerInfo,
    until: Instant,
    kubelet_starts: u64,
    /// Whether it was read since the kubelet's start.
    is_read: bool,
}

impl OwnerLookup {
    /// `namespace` is the one the exporter runs in, if any.
    pub(super) fn new(kind: OwnerKind, node: &str, namespace: Option<String>, client: &kube::Client) -> Self {
        Self {
            kind,
            node: node.to_owned(),
            namespace,
            client: client.clone(),
            namespaces: Api::all(client.clone()),
            known: None,
            random: Random::from_entropy(),
            logged: false,
            absent: false,
        }
    }

    /// The owner to write. `absent`: there is no object at the moment.
    pub(super) async fn find(&mut self, want: &Desired, absent: bool) -> Result<OwnerInfo, Error> {
        if self.kind == OwnerKind::Leave {
            return Ok(OwnerInfo::only(Owner::Leave));
        }
        // Once for each deletion: while the object cannot be created, asking again would not help.
        let gone = absent && !std::mem::replace(&mut self.absent, absent);
        self.absent = absent;
        let fresh = |known: &&CachedOwner| {
            !(gone && self.kind == OwnerKind::Node)
                && known.kubelet_starts == want.kubelet_starts
                && Instant::now() < known.until
        };
        if let Some(known) = self.known.as_ref().filter(fresh) {
            return Ok(known.info.clone());
        }
        let info = match self.kind {
            OwnerKind::Node => self.node().await,
            OwnerKind::Leave | OwnerKind::Namespace => self.namespace().await.map(OwnerInfo::only),
        };
        match info {
            Ok(info) => {
                self.cache(info.clone(), want);
                Ok(info)
            }
            // The zones must stay true under any owner. The old answer is kept for a while, or the next call
            // would follow at once.
            Err(error) if !absent && self.known.is_some() => {
                debug!(%error, "the owner could not be read again and stays as it is");
                let known = self.known.take().map(|known| known.info);
                let info = known.unwrap_or_else(|| OwnerInfo::only(Owner::Leave));
                self.known = Some(self.cached(info.clone(), want, RETRIED_AFTER, false));
                Ok(info)
            }
            Err(error) => {
                self.absent = false;
                Err(error)
            }
        }
    }

    /// Handles a refusal to set the owner (OpenShift refuses it without permission to delete the object). True if the
    /// write can be repeated without an owner.
    pub(super) fn refused(&mut self, refusal: &kube::Error) -> bool {
        let about_owners = brief(refusal).contains("ownerRef");
        let known = self.known.as_mut().filter(|known| about_owners && known.info.owner != Owner::Leave);
        let Some(known) = known else { return false };
        known.info.owner = Owner::Leave;
        self.log_once(
            refusal,
            "not allowed to change the owner of the object, leaving it; to allow it, grant verb delete on \
             noderesourcetopologies.topology.node.k8s.io in a ClusterRole",
        );
        true
    }

    /// When the answer expires.
    pub(super) fn expires_at(&self) -> Instant {
        self.known.as_ref().map_or_else(|| Instant::now() + CACHED_FOR, |known| known.until)
    }

    async fn node(&self) -> Result<OwnerInfo, Error> {
        let error = |verb| move |source| Error::Api { verb, source: Box::new(source) };
        let nodes = Request::new("/api/v1/nodes");
        let get = nodes.get(&self.node, &GetParams::default()).map_err(kube::Error::BuildRequest);
        let get = get.map_err(error("get node"))?;
        let node = match self.client.request::<Node>(get).await {
            Ok(node) => Some(node),
            Err(missing) if is_not_found(&missing) => None,
            Err(refusal) if is_forbidden(&refusal) => {
                let of_that_name = ListParams::default().fields(&format!("metadata.name={}", self.node));
                let list = nodes.list(&of_that_name).map_err(kube::Error::BuildRequest);
                let list = list.map_err(error("get, list node"))?;
                let nodes = self.client.request::<Nodes>(list).await.map_err(error("get, list node"))?;
                nodes.items.into_iter().next()
            }
            Err(other) => return Err(error("get node")(other)),
        };
        let node = node.ok_or_else(|| Error::NoNode(self.node.clone()))?;
        let uid = node.metadata.uid.ok_or_else(|| Error::NoNode(self.node.clone()))?;
        let kubelet_version = node.status.node_info.kubelet_version.filter(|version| !version.is_empty());
        Ok(OwnerInfo { owner: Owner::Node { uid }, kubelet_version })
    }

    async fn namespace(&mut self) -> Result<Owner, Error> {
        let Some(name) = self.namespace.clone() else {
            if !std::mem::replace(&mut self.logged, true) {
                info!("the exporter runs in no namespace, so the object has no owner");
            }
            return Ok(Owner::Leave);
        };
        match self.namespaces.get_metadata_opt(&name).await {
            Ok(space) => {
                let uid = space.and_then(|space| space.metadata.uid);
                Ok(uid.map_or(Owner::Leave, |uid| Owner::Namespace { name, uid }))
            }
            Err(refusal) if is_forbidden(&refusal) => {
                self.log_once(
                    &refusal,
                    "not allowed to read the exporter's namespace, so the object has no owner; to allow it, grant \
                     verb get on namespaces in a ClusterRole",
                );
                Ok(Owner::Leave)
            }
            Err(source) => Err(Error::Api { verb: "get namespace", source: Box::new(source) }),
        }
    }

    fn cache(&mut self, info: OwnerInfo, want: &Desired) {
        let was_read = |known: &CachedOwner| {
            known.is_read && known.kubelet_starts == want.kubelet_starts && known.until <= Instant::now()
        };
        let is_settled = self.kind == OwnerKind::Namespace || self.known.as_ref().is_some_and(was_read);
        let span = if is_settled { CACHED_FOR } else { RETRIED_AFTER };
        self.known = Some(self.cached(info, want, span, true));
    }

    fn cached(&mut self, info: OwnerInfo, want: &Desired, span: Duration, is_read: bool) -> CachedOwner {
        let until = Instant::now() + jittered(span, &mut self.random);
        CachedOwner { info, until, kubelet_starts: want.kubelet_starts, is_read }
    }

    fn log_once(&mut self, refusal: &kube::Error, what: &'static str) {
        if !std::mem::replace(&mut self.logged, true) {
            info!(refusal = brief(refusal), "{what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::desired;
    use super::*;
    use crate::script::server;
    use serde_json::json;

    /// A kubelet that was upgraded writes its version some seconds after its start.
    #[tokio::test]
    async fn an_answer_about_a_start_is_read_again_soon() {
        let node = |version: &str| {
            let metadata = json!({ "name": "n1", "uid": "u" });
            (200, json!({ "metadata": metadata, "status": { "nodeInfo": { "kubeletVersion": version } } }))
        };
        let answers = ["v1", "v1", "v1", "v2"].map(node);
        let (client, _requests) = server(answers);
        let mut lookup = OwnerLookup::new(OwnerKind::Node, "n1", None, &client);
        // Starts of the kubelet, the version that is found, and about how long it counts.
        let steps = [
            (0, "v1", RETRIED_AFTER),
            (0, "v1", CACHED_FOR),
            (1, "v1", RETRIED_AFTER),
            (1, "v2", CACHED_FOR),
        ];
        for (kubelet_starts, version, span) in steps {
            let want = Desired { kubelet_starts, ..desired(5) };
            let found = lookup.find(&want, false).await.unwrap();
            assert_eq!(found.kubelet_version.as_deref(), Some(version));
            let left = lookup.expires_at() - Instant::now();
            assert!(left > span / 2 && left < span * 2, "{left:?} {span:?}");
            lookup.known.as_mut().unwrap().until = Instant::now();
        }
    }
}
