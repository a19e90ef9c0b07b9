//! What has to be in a cluster, as functions of the options.
//!
//! In: [`Options`]. Out: typed objects, in [`Part`]s in the order in which they are installed, and the same as text. Never: a template, a
//! cluster, a clock: the same options give the same bytes.

use crate::object::{self, Object};
use crate::options::Options;
use crate::part::{Component, Part};
use crate::platform::Version;

pub mod text;

pub use text::{render, render_json};

/// What cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value that is not an object.
    #[error(transparent)]
    Object(#[from] object::Error),
    /// An object without a text form.
    #[error("{0} cannot be written: {1}")]
    Text(String, String),
    /// An option's value that is not allowed.
    #[error("{option}: {value} is not allowed; it must be {allowed}")]
    Option {
        /// Which option.
        option: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        allowed: &'static str,
    },
}

/// The objects of the components, in the order of [`Component::ALL`] whatever the order of `components`.
///
/// # Errors
/// When an option has a value that makes no sense.
pub fn parts(options: &Options, components: &[Component]) -> Result<Vec<Part>, Error> {
    let wanted = |component: &Component| components.contains(component);
    Component::ALL.into_iter().filter(wanted).map(|component| part(options, component)).collect()
}

fn part(_options: &Options, component: Component) -> Result<Part, Error> {
    let objects = match component {
        Component::Api => vec![Object::new(&api::crd::nrt_crd())?],
        Component::TopologyUpdater | Component::SchedulerPlugin => Vec::new(),
    };
    Ok(Part::new(component, objects))
}

/// The SELinux policy (CIL) that RTE needs on OpenShift of this version.
///
/// # Errors
/// None yet.
pub fn selinux_policy(_version: &Version) -> Result<String, Error> {
    Ok(String::new())
}
