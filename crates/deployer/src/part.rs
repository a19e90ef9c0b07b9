//! What is installed together: the objects of one component, in the order in which they are made.
//!
//! In: objects. Out: the same with their owner's mark. Never: a cluster.

use std::fmt;

use objects::Object;

/// The label that tells what we made from what was there before; only objects that have it are ever changed or removed.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const MANAGER: &str = "tholepin-deployer";
/// The label that tells to which [`Component`] an object belongs.
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// A thing that can be installed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The NodeResourceTopology definition.
    Api,
    /// What publishes NodeResourceTopology objects.
    TopologyUpdater,
    /// What schedules by them.
    SchedulerPlugin,
}

/// The objects of one component. They are made in this order and removed in the opposite one.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    component: Component,
    objects: Vec<Object>,
}

impl Component {
    /// In the order in which they are installed.
    pub const ALL: [Self; 3] = [Self::Api, Self::TopologyUpdater, Self::SchedulerPlugin];

    /// Its name on the command line and in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::TopologyUpdater => "topology-updater",
            Self::SchedulerPlugin => "scheduler-plugin",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Part {
    /// The objects, marked as ours.
    pub fn new(component: Component, objects: impl IntoIterator<Item = Object>) -> Self {
        let mark =
            |object: Object| object.labelled(MANAGED_BY, MANAGER).labelled(COMPONENT, component.name());
        Self { component, objects: objects.into_iter().map(mark).collect() }
    }

    /// Which component it is.
    #[must_use]
    pub fn component(&self) -> Component {
        self.component
    }

    /// Its objects in the order in which they are made.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }
}
