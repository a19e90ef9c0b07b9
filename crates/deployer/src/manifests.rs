//! What has to be in a cluster, as functions of the options.
//!
//! In: [`Options`]. Out: typed objects, in [`Part`]s in the order in which they are installed, and the same as text. Never: a template, a
//! cluster, a clock: the same options give the same bytes.
//!
//! Each program has a module with a function for each of its objects, for those who keep them true one by one, and `objects` for
//! all of them.

use crate::options::{Options, Scheduler, Updater};
use crate::part::{Component, Part};
use crate::platform::Version;
use objects::{Object, object};

pub mod access;
pub mod claims;
pub mod controller;
pub mod exporter;
pub mod meta;
pub mod network;
pub mod nfd;
pub mod openshift;
pub mod plugin;
pub mod pod;
pub mod podgroups;
pub mod rte;
pub mod scheduler;
pub mod schedulerconfig;
pub mod text;

pub use text::{render, render_json};

/// What cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value that is not an object.
    #[error(transparent)]
    Object(#[from] object::Error),
    /// Something without a text form, or with one that its reader would refuse.
    #[error("{0}: {1}")]
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
    /// As many schedulers as there cannot be. The Go deployer's words.
    #[error("non-positive replicas: {0}")]
    Replicas(i32),
}

/// The objects of the components, in the order of [`Component::ALL`] whatever the order of `components`.
///
/// # Errors
/// When an option has a value that makes no sense.
pub fn parts(options: &Options, components: &[Component]) -> Result<Vec<Part>, Error> {
    let (updater, scheduler) = namespaces(options);
    if updater == scheduler {
        return Err(Error::Option {
            option: "namespace",
            value: format!("{updater:?} for updater and scheduler"),
            allowed: "another one for each: it is made and removed with its component",
        });
    }
    let wanted = |component: &Component| components.contains(component);
    Component::ALL.into_iter().filter(wanted).map(|component| part(options, component)).collect()
}

/// The namespaces of the updater and of the scheduler.
#[must_use]
pub fn namespaces(options: &Options) -> (&str, &str) {
    let updater = match options.updater.kind {
        Updater::Tholepin => exporter::account(options).namespace,
        Updater::Rte => rte::account(options).namespace,
        Updater::Nfd => nfd::account(options).namespace,
    };
    let scheduler = match options.scheduler.kind {
        Scheduler::Tholepin => scheduler::account(options).namespace,
        Scheduler::Plugin => plugin::account(options).namespace,
    };
    (updater, scheduler)
}

fn part(options: &Options, component: Component) -> Result<Part, Error> {
    let objects = match component {
        Component::Api => vec![Object::new(&api::crd::nrt_crd())?],
        Component::TopologyUpdater => match options.updater.kind {
            Updater::Tholepin => exporter::objects(options)?,
            Updater::Rte => rte::objects(options)?,
            Updater::Nfd => nfd::objects(options)?,
        },
        Component::SchedulerPlugin => match options.scheduler.kind {
            Scheduler::Tholepin => scheduler::objects(options)?,
            Scheduler::Plugin => plugin::objects(options)?,
        },
    };
    Ok(Part::new(component, objects))
}

/// The SELinux policy (CIL) that RTE needs on OpenShift of this version.
#[must_use]
pub fn selinux_policy(version: &Version) -> String {
    openshift::selinux::policy(Some(version))
}

/// How many schedulers.
fn replicas(options: &Options) -> Result<i32, Error> {
    let replicas = options.scheduler.replicas;
    if replicas > 0 { Ok(replicas) } else { Err(Error::Replicas(replicas)) }
}

#[cfg(test)]
mod tests;
