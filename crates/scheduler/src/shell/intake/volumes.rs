//! Core events of the watches of storage.
//!
//! In: watch events of claims, PersistentVolumes, classes, CSINodes, drivers, capacities and attachments. Out: changes
//! for the core. Never: a whole object that is kept; each is made small as it arrives.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::mpsc::Sender;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Resource};
use runtime::client::Connection;
use runtime::shutdown::Tasks;
use runtime::watch::{self, Key};
use serde::de::DeserializeOwned;

use super::super::event_loop::Input;
use super::Source;
use crate::core::Event;
use crate::volumes::Change;
use crate::volumes::reference::ClaimKey;
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};

/// The number of kinds.
pub(super) const KINDS: usize = 7;

/// What starts watches.
pub(in crate::shell) struct Watches<'a> {
    pub(in crate::shell) tasks: &'a mut Tasks,
    pub(in crate::shell) connection: &'a Connection,
    pub(in crate::shell) metrics: &'a watch::Metrics,
    pub(in crate::shell) sender: &'a Sender<Input>,
}

impl Watches<'_> {
    /// Starts the watches of all kinds.
    pub(in crate::shell) fn spawn(mut self) -> anyhow::Result<()> {
        self.watch(
            "watch persistentvolumeclaims",
            |it: &PersistentVolumeClaim| Change::Claim(ClaimView::read(it)),
            |key| Change::ClaimGone(ClaimKey { namespace: key.namespace.into(), name: key.name.into() }),
        )?;
        self.watch(
            "watch persistentvolumes",
            |it: &PersistentVolume| Change::Volume(Box::new(VolumeView::read(it))),
            |key| Change::VolumeGone(key.name.into()),
        )?;
        self.watch(
            "watch storageclasses",
            |it: &StorageClass| Change::Class(ClassView::read(it)),
            |key| Change::ClassGone(key.name.into()),
        )?;
        self.watch(
            "watch csinodes",
            |it: &CSINode| Change::CsiNode(CsiNodeView::read(it)),
            |key| Change::CsiNodeGone(key.name.into()),
        )?;
        self.watch(
            "watch csidrivers",
            |it: &CSIDriver| Change::Driver(DriverView::read(it)),
            |key| Change::DriverGone(key.name.into()),
        )?;
        self.watch(
            "watch csistoragecapacities",
            |it: &CSIStorageCapacity| Change::Capacity(CapacityView::read(it)),
            |key| Change::CapacityGone(key.namespace.into(), key.name.into()),
        )?;
        self.watch(
            "watch volumeattachments",
            |it: &VolumeAttachment| Change::Attachment(AttachmentView::read(it)),
            |key| Change::AttachmentGone(key.name.into()),
        )
    }

    fn watch<K>(
        &mut self,
        name: &'static str,
        read: fn(&K) -> Change,
        gone: fn(Key) -> Change,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let api: Api<DeserializeGuard<K>> = Api::all(self.connection.watch_client()?);
        let (out, metrics) = (self.sender.clone(), self.metrics.clone());
        self.tasks.spawn(name, async move {
            let forward =
                |event| drop(out.send(Input::Change((Source::Volumes(name), changes(event, gone)))));
            let small = |guard: DeserializeGuard<K>| {
                let object = guard.0.map_err(|error| error.to_string())?;
                Ok((Key::of(&object), read(&object)))
            };
            let config = watcher::Config::default();
            Ok::<_, Infallible>(
                watch::run_mapped(api, &K::plural(&()), config, &metrics, small, forward).await,
            )
        });
        Ok(())
    }
}

/// Core events of a watch of one kind.
fn changes(event: watch::Event<(Key, Change)>, gone: fn(Key) -> Change) -> Vec<Event> {
    match event {
        watch::Event::Reset { objects, vanished } => {
            let objects = objects.into_iter().map(|(_, change)| change);
            vanished.into_iter().map(gone).chain(objects).map(Event::Volumes).collect()
        }
        watch::Event::Applied((_, change)) => vec![Event::Volumes(change)],
        watch::Event::Deleted((key, _)) => vec![Event::Volumes(gone(key))],
        watch::Event::Unreadable { key, reason } => {
            tracing::warn!(object = %key, reason, "an object of storage cannot be read, and counts as gone");
            vec![Event::Volumes(gone(key))]
        }
    }
}
