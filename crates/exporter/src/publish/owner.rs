//! Who owns the object: the UID of our Node or of our namespace; and the kubelet's version, which the same Node tells.
//!
//! In: what is wanted, reasons to doubt what is known. Out: [`Told`]. Never: more of a Node than these two.
//!
//! A Node's UID is read before the first write, again whenever the object was deleted (which is what the garbage collector
//! does to the object of a node that was replaced), whenever the kubelet restarted (which is when nodes are registered), and
//! every ten minutes. It is read by `get`, or where only `list` is allowed by a list of that one name. While there is no
//! Node, nothing is published: an object without an owner would stay for ever.
//!
//! A namespace is not replaced under a running pod, and nfd-topology-updater publishes without an owner when it may not read
//! it: so it is here.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{GetParams, ListParams};
use kube::core::Request;
use runtime::client::{brief, is_forbidden, is_not_found};
use runtime::random::Random;
use serde::Deserialize;
use tracing::{debug, info};

use super::{Desired, Error, jittered};
use crate::object::Owner;
use crate::settings::OwnerKind;

/// How long a UID is believed without a reason to doubt it.
const BELIEVED_FOR: Duration = Duration::from_secs(600);
/// How long it is believed when it could not be looked up again.
const DOUBTED_FOR: Duration = Duration::from_secs(30);

/// What the API server told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) owner: Owner,
    /// The version of the node's kubelet, where the Node was read.
    pub(super) kubelet_version: Option<String>,
}

impl Told {
    fn only(owner: Owner) -> Self {
        Self { owner, kubelet_version: None }
    }
}

/// What is read of a Node.
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
pub(super) struct Owners {
    kind: OwnerKind,
    node: String,
    namespace: Option<String>,
    client: kube::Client,
    namespaces: Api<Namespace>,
    known: Option<Known>,
    random: Random,
    told: bool,
    /// There was no object when last asked.
    absent: bool,
}

/// An answer, and how long it is good.
struct Known {
    told: Told,
    until: Instant,
    kubelet_starts: u64,
}

impl Owners {
    /// `namespace` is the one we run in, if any.
    pub(super) fn new(kind: OwnerKind, node: &str, namespace: Option<String>, client: &kube::Client) -> Self {
        Self {
            kind,
            node: node.to_owned(),
            namespace,
            client: client.clone(),
            namespaces: Api::all(client.clone()),
            known: None,
            random: Random::from_entropy(),
            told: false,
            absent: false,
        }
    }

    /// The owner to state. `absent`: there is no object at the moment.
    pub(super) async fn find(&mut self, want: &Desired, absent: bool) -> Result<Told, Error> {
        if self.kind == OwnerKind::Leave {
            return Ok(Told::only(Owner::Leave));
        }
        // Once for each time it goes: while it cannot be created, asking again and again would not help.
        let gone = absent && !std::mem::replace(&mut self.absent, absent);
        self.absent = absent;
        let fresh = |known: &&Known| {
            !(gone && self.kind == OwnerKind::Node)
                && known.kubelet_starts == want.kubelet_starts
                && Instant::now() < known.until
        };
        if let Some(known) = self.known.as_ref().filter(fresh) {
            return Ok(known.told.clone());
        }
        let told = match self.kind {
            OwnerKind::Node => self.node().await,
            OwnerKind::Leave | OwnerKind::Namespace => self.namespace().await.map(Told::only),
        };
        match told {
            Ok(told) => {
                self.believe(told.clone(), want);
                Ok(told)
            }
            // What the object says of the zones must stay true whoever owns it. Believed for a while, or the next look would
            // follow at once.
            Err(error) if !absent && self.known.is_some() => {
                debug!(%error, "the owner stays as it is");
                let known = self.known.take().map(|known| known.told);
                let told = known.unwrap_or_else(|| Told::only(Owner::Leave));
                self.believe_for(DOUBTED_FOR, told.clone(), want);
                Ok(told)
            }
            Err(error) => {
                self.absent = false;
                Err(error)
            }
        }
    }

    /// The server does not let us say who owns the object (OpenShift lets nobody change that who may not delete the object).
    /// True if that is a way on: without a word about owners.
    pub(super) fn refused(&mut self, refusal: &kube::Error, want: &Desired) -> bool {
        let about_owners = brief(refusal).contains("ownerRef");
        if !about_owners || self.known.as_ref().is_none_or(|known| known.told.owner == Owner::Leave) {
            return false;
        }
        self.tell(
            refusal,
            "not allowed to change the owner of our object, leaving it; verb delete on \
             noderesourcetopologies.topology.node.k8s.io in a ClusterRole would do",
        );
        let kubelet_version = self.known.take().and_then(|known| known.told.kubelet_version);
        self.believe(Told { owner: Owner::Leave, kubelet_version }, want);
        true
    }

    /// When what is known should be looked up again.
    pub(super) fn doubts_at(&self) -> Instant {
        self.known.as_ref().map_or_else(|| Instant::now() + BELIEVED_FOR, |known| known.until)
    }

    async fn node(&self) -> Result<Told, Error> {
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
        Ok(Told { owner: Owner::Node { uid }, kubelet_version })
    }

    async fn namespace(&mut self) -> Result<Owner, Error> {
        let Some(name) = self.namespace.clone() else {
            if !std::mem::replace(&mut self.told, true) {
                info!("we do not run in a namespace, so the object has no owner");
            }
            return Ok(Owner::Leave);
        };
        match self.namespaces.get_metadata_opt(&name).await {
            Ok(space) => {
                let uid = space.and_then(|space| space.metadata.uid);
                Ok(uid.map_or(Owner::Leave, |uid| Owner::Namespace { name, uid }))
            }
            Err(refusal) if is_forbidden(&refusal) => {
                self.tell(
                    &refusal,
                    "not allowed to read our namespace, so the object has no owner; verb get on namespaces in a ClusterRole \
                     would give it one",
                );
                Ok(Owner::Leave)
            }
            Err(source) => Err(Error::Api { verb: "get namespace", source: Box::new(source) }),
        }
    }

    fn believe(&mut self, told: Told, want: &Desired) {
        self.believe_for(BELIEVED_FOR, told, want);
    }

    fn believe_for(&mut self, span: Duration, told: Told, want: &Desired) {
        let until = Instant::now() + jittered(span, &mut self.random);
        self.known = Some(Known { told, until, kubelet_starts: want.kubelet_starts });
    }

    fn tell(&mut self, refusal: &kube::Error, what: &'static str) {
        if !std::mem::replace(&mut self.told, true) {
            info!(refusal = brief(refusal), "{what}");
        }
    }
}
