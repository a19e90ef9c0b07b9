//! The watches that feed the core.
//!
//! In: an API server. Out: core events, from each watch in the order of the server. Never: a whole object that waits in
//! a queue; each watch translates its own.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::mpsc::Sender;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Resource};
use runtime::client::Connection;
use runtime::shutdown::Tasks;
use runtime::watch::{self, Key};
use serde::de::DeserializeOwned;

use super::event_loop::Input;
use super::intake::{self, ReportReader, ReportView, Source};
use super::wire_pod::{Warnings, WirePod};
use super::wire_selecting::{Selecting, WireSelecting};
use crate::core::Event;
use crate::devices::Change as DeviceChange;
use crate::devices::views::claim::ClaimView as DeviceClaimView;
use crate::devices::views::{ClassView as DeviceClassView, SliceView};
use crate::metrics::Metrics;
use crate::node::NodeView;
use crate::volumes::Change;
use crate::volumes::reference::ClaimKey;
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};

/// The task that watches budgets.
const BUDGETS: &str = "watch poddisruptionbudgets";

/// What starts watches.
pub(super) struct Watches<'a> {
    tasks: &'a mut Tasks,
    connection: &'a Connection,
    metrics: &'a watch::Metrics,
    inputs: &'a Sender<Input>,
    /// How many have been started.
    started: usize,
}

impl<'a> Watches<'a> {
    pub(super) fn new(
        tasks: &'a mut Tasks,
        connection: &'a Connection,
        metrics: &'a watch::Metrics,
        inputs: &'a Sender<Input>,
    ) -> Self {
        Self { tasks, connection, metrics, inputs, started: 0 }
    }

    /// Starts the watches of all kinds; of PodGroups if gangs are placed whole. Returns their number.
    pub(super) fn spawn(mut self, metrics: &Metrics, places_gangs: bool) -> anyhow::Result<usize> {
        if places_gangs {
            self.guarded::<PodGroup>(("watch podgroups", Source::PodGroups), intake::pod_group)?;
        }
        self.zones(metrics)?;
        self.plain::<Namespace>(("watch namespaces", Source::Namespaces), intake::namespace)?;
        self.budgets()?;
        self.selecting::<Service>(("watch services", Source::Services))?;
        let controllers = ("watch replicationcontrollers", Source::ReplicationControllers);
        self.selecting::<ReplicationController>(controllers)?;
        self.selecting::<ReplicaSet>(("watch replicasets", Source::ReplicaSets))?;
        self.selecting::<StatefulSet>(("watch statefulsets", Source::StatefulSets))?;
        self.devices()?;
        self.storage()?;
        Ok(self.started)
    }

    /// Starts the watches of what decides about zones alone, and of what victims rest on. Returns their number.
    pub(super) fn spawn_for_zones(mut self, metrics: &Metrics) -> anyhow::Result<usize> {
        self.zones(metrics)?;
        self.budgets_if_allowed()?;
        Ok(self.started)
    }

    fn budgets(&mut self) -> anyhow::Result<()> {
        self.guarded::<PodDisruptionBudget>((BUDGETS, Source::Budgets), intake::budget)
    }

    /// Budgets, for an account that may lack the right to read them: then there is none.
    fn budgets_if_allowed(&mut self) -> anyhow::Result<()> {
        let api = Api::<DeserializeGuard<PodDisruptionBudget>>::all(self.connection.watch_client()?);
        let (config, metrics) = (watcher::Config::default(), self.metrics.clone());
        let mut sink = self.sink(Source::Budgets, intake::budget);
        self.tasks.spawn(BUDGETS, async move {
            let reason = watch::run_while_allowed(api, config, &metrics, &mut sink).await;
            tracing::warn!(
                reason,
                "PodDisruptionBudgets cannot be read: each victim counts as one that may leave"
            );
            sink(watch::Event::Reset { objects: Vec::new(), vanished: Vec::new(), served: true });
            Ok::<Infallible, Infallible>(std::future::pending().await)
        });
        Ok(())
    }

    /// Pods, nodes and reports.
    fn zones(&mut self, metrics: &Metrics) -> anyhow::Result<()> {
        // All pods, finished ones too, although those hold nothing. With a selection of unfinished pods the server
        // announces an end as a deletion that shows the state *before*, which looks like a forced deletion.
        let mut warnings = Warnings::default();
        let view = move |pod: WirePod| Ok(warnings.view(pod));
        self.mapped(("watch pods", Source::Pods), view, intake::pod)?;
        let view = |node: Node| Ok(NodeView::read(&node));
        self.mapped(("watch nodes", Source::Nodes), view, intake::node)?;
        let mut reader = ReportReader::new(metrics.clone());
        let reports = ("watch noderesourcetopologies", Source::Reports);
        let view = |guard: DeserializeGuard<NodeResourceTopology>| {
            watch::unwrap_guard(guard).map(|object| ReportView::read(&object))
        };
        self.mapped(reports, view, move |event| reader.take(event))
    }

    /// Claims for devices, slices and classes; none where the server does not have the kinds.
    fn devices(&mut self) -> anyhow::Result<()> {
        self.of_devices(
            "watch resourceclaims",
            |it: &ResourceClaim| DeviceChange::Claim(Box::new(DeviceClaimView::read(it))),
            |key| {
                DeviceChange::ClaimGone(ClaimKey { namespace: key.namespace.into(), name: key.name.into() })
            },
        )?;
        self.of_devices(
            "watch resourceslices",
            |it: &ResourceSlice| DeviceChange::Slice(Box::new(SliceView::read(it))),
            |key| DeviceChange::SliceGone(key.name.into()),
        )?;
        self.of_devices(
            "watch deviceclasses",
            |it: &DeviceClass| DeviceChange::Class(Box::new(DeviceClassView::read(it))),
            |key| DeviceChange::ClassGone(key.name.into()),
        )
    }

    fn storage(&mut self) -> anyhow::Result<()> {
        self.stored(
            "watch persistentvolumeclaims",
            |it: &PersistentVolumeClaim| Change::Claim(ClaimView::read(it)),
            |key| Change::ClaimGone(ClaimKey { namespace: key.namespace.into(), name: key.name.into() }),
        )?;
        self.stored(
            "watch persistentvolumes",
            |it: &PersistentVolume| Change::Volume(Box::new(VolumeView::read(it))),
            |key| Change::VolumeGone(key.name.into()),
        )?;
        self.stored(
            "watch storageclasses",
            |it: &StorageClass| Change::Class(ClassView::read(it)),
            |key| Change::ClassGone(key.name.into()),
        )?;
        self.stored(
            "watch csinodes",
            |it: &CSINode| Change::CsiNode(CsiNodeView::read(it)),
            |key| Change::CsiNodeGone(key.name.into()),
        )?;
        self.stored(
            "watch csidrivers",
            |it: &CSIDriver| Change::Driver(DriverView::read(it)),
            |key| Change::DriverGone(key.name.into()),
        )?;
        self.stored(
            "watch csistoragecapacities",
            |it: &CSIStorageCapacity| Change::Capacity(CapacityView::read(it)),
            |key| Change::CapacityGone(key.namespace.into(), key.name.into()),
        )?;
        self.stored(
            "watch volumeattachments",
            |it: &VolumeAttachment| Change::Attachment(AttachmentView::read(it)),
            |key| Change::AttachmentGone(key.name.into()),
        )
    }

    /// A kind of objects that select pods.
    fn selecting<K: Selecting + Clone + Debug + Send + 'static>(
        &mut self,
        to: (&'static str, Source),
    ) -> anyhow::Result<()> {
        let view = |object: WireSelecting<K>| Ok(object.into_view());
        self.mapped(to, view, |event| intake::selecting(K::KIND, event))
    }

    /// A kind of storage.
    fn stored<K>(
        &mut self,
        name: &'static str,
        read: fn(&K) -> Change,
        gone: fn(Key) -> Change,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let view = move |guard: DeserializeGuard<K>| {
            let object = guard.0.map_err(|error| error.to_string())?;
            Ok((Key::of(&object), read(&object)))
        };
        self.mapped((name, Source::Volumes(name)), view, move |event| intake::volumes(event, gone))
    }

    /// A kind of devices.
    fn of_devices<K>(
        &mut self,
        name: &'static str,
        read: fn(&K) -> DeviceChange,
        gone: fn(Key) -> DeviceChange,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let view = move |guard: DeserializeGuard<K>| {
            let object = guard.0.map_err(|error| error.to_string())?;
            Ok((Key::of(&object), read(&object)))
        };
        self.mapped((name, Source::Devices(name)), view, move |event| intake::devices(event, gone))
    }

    /// A kind that the server validates.
    fn plain<K>(
        &mut self,
        (name, source): (&'static str, Source),
        translate: impl FnMut(watch::Event<K>) -> Vec<Event> + Send + 'static,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (api, metrics) = (Api::all(self.connection.watch_client()?), self.metrics.clone());
        let sink = self.sink(source, translate);
        self.tasks.spawn(name, async move {
            Ok::<_, Infallible>(watch::run(api, watcher::Config::default(), &metrics, sink).await)
        });
        Ok(())
    }

    /// A kind of which single objects may be unreadable.
    fn guarded<K>(
        &mut self,
        (name, source): (&'static str, Source),
        translate: impl FnMut(watch::Event<K>) -> Vec<Event> + Send + 'static,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (api, metrics) = (Api::all(self.connection.watch_client()?), self.metrics.clone());
        let sink = self.sink(source, translate);
        self.tasks.spawn(name, async move {
            Ok::<_, Infallible>(
                watch::run_guarded::<K>(api, watcher::Config::default(), &metrics, sink).await,
            )
        });
        Ok(())
    }

    /// A kind that is made small as it arrives.
    fn mapped<W, K: Send + 'static>(
        &mut self,
        (name, source): (&'static str, Source),
        view: impl FnMut(W) -> Result<K, String> + Send + 'static,
        translate: impl FnMut(watch::Event<K>) -> Vec<Event> + Send + 'static,
    ) -> anyhow::Result<()>
    where
        W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (api, metrics) = (Api::<W>::all(self.connection.watch_client()?), self.metrics.clone());
        let sink = self.sink(source, translate);
        self.tasks.spawn(name, async move {
            let (kind, config) = (W::plural(&()), watcher::Config::default());
            Ok::<_, Infallible>(watch::run_mapped(api, &kind, config, &metrics, view, sink).await)
        });
        Ok(())
    }

    /// Where the events of a watch go, which is started next.
    fn sink<E, T>(&mut self, source: Source, mut translate: T) -> impl FnMut(E) + use<E, T>
    where
        T: FnMut(E) -> Vec<Event>,
    {
        self.started += 1;
        let inputs = self.inputs.clone();
        move |event| drop(inputs.send(Input::Change((source, translate(event)))))
    }
}
