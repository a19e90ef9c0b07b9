//! Components, and the objects of each.
//!
//! In: objects. Out: the objects with our labels, in the order of installation. Never: a cluster.

use std::fmt;

use objects::Object;

/// The label of our objects; only objects with this label and the value [`MANAGER`] are changed or removed.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGER: &str = "tholepin-deployer";
/// The label of the whole that an object is part of.
const PART_OF: &str = "app.kubernetes.io/part-of";
/// The value of [`PART_OF`].
const PRODUCT: &str = "tholepin";
/// The label with the [`Component`] that an object belongs to.
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// A component, which can be installed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Component {
    /// The CustomResourceDefinition of NodeResourceTopology.
    Api,
    /// The program that publishes NodeResourceTopology objects.
    #[value(alias = "topology-updater")]
    Exporter,
    /// The scheduler that reads them.
    #[value(alias = "scheduler-plugin")]
    Scheduler,
}

/// The objects of one component, in the order of installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    component: Component,
    objects: Vec<Object>,
}

impl Component {
    /// All components, in the order of installation.
    pub const ALL: [Self; 3] = [Self::Api, Self::Exporter, Self::Scheduler];

    /// The name on the command line and in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Exporter => "exporter",
            Self::Scheduler => "scheduler",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Part {
    /// The part of a component; adds the labels [`MANAGED_BY`], `app.kubernetes.io/part-of` and [`COMPONENT`] to the
    /// objects.
    pub fn new(component: Component, objects: impl IntoIterator<Item = Object>) -> Self {
        let mark = |object: Object| {
            let ours = object.labelled(MANAGED_BY, MANAGER).labelled(PART_OF, PRODUCT);
            ours.labelled(COMPONENT, component.name())
        };
        Self { component, objects: objects.into_iter().map(mark).collect() }
    }

    /// The component.
    #[must_use]
    pub fn component(&self) -> Component {
        self.component
    }

    /// The objects in the order of installation.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }
}
