//! The objects of each component, as functions of the options.
//!
//! In: [`Options`]. Out: typed objects in [`Part`]s, in the order of installation, and as text. Never: a template, a
//! cluster, a clock; the same options give the same bytes.
//!
//! Each program has a module with one function for each object, which the operator calls, and `objects` for all of
//! them.

use crate::options::{Options, Scheduler, Updater};
use crate::part::{Component, Part};
use objects::Object;

pub mod access;
pub mod controller;
pub mod exporter;
pub mod kubelet;
pub mod meta;
pub mod monitoring;
pub mod network;
pub mod nfd;
pub mod openshift;
pub mod plugin;
pub mod pod;
pub mod podgroups;
pub mod resource_claims;
pub mod rte;
pub mod scheduler;
pub mod schedulerconfig;
pub mod text;
pub mod web;

/// Options that have no manifests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A text that cannot be written, or that its reader would reject.
    #[error("{0}: {1}")]
    Text(String, String),
    /// An option has a value that is not allowed.
    #[error("{option}: {value} is not allowed; it must be {allowed}")]
    Option {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A number of schedulers below one; the message is the Go deployer's.
    #[error("non-positive replicas: {0}")]
    Replicas(i32),
}

/// The objects of the components, always in the order of [`Component::ALL`].
///
/// # Errors
/// When an option has a value that is not allowed.
pub fn parts(options: &Options, components: &[Component]) -> Result<Vec<Part>, Error> {
    let (updater, scheduler) = namespaces(options);
    if updater == scheduler {
        return Err(Error::Option {
            option: "namespace",
            value: format!("{updater:?} for updater and scheduler"),
            allowed: "a separate namespace for each component, which is created and removed with it",
        });
    }
    let wanted = |component: &Component| components.contains(component);
    Component::ALL.into_iter().filter(wanted).map(|component| part(options, component)).collect()
}

/// The objects of the components in one namespace, which is there already and so not among them.
///
/// # Errors
/// When an option has a value that is not allowed.
pub fn parts_within(
    options: &Options,
    namespace: &str,
    components: &[Component],
) -> Result<Vec<Part>, Error> {
    let mut options = options.clone();
    options.updater.namespace = Some(namespace.to_owned());
    options.scheduler.namespace = Some(namespace.to_owned());
    let mut parts: Vec<Part> = Vec::new();
    for component in Component::ALL.into_iter().filter(|component| components.contains(component)) {
        let all = part(&options, component)?;
        // Both programs' objects have the quota of their namespace.
        let is_there = |object: &Object| {
            let mut earlier = parts.iter().flat_map(Part::objects);
            earlier.any(|other| (other.kind(), other.name()) == (object.kind(), object.name()))
        };
        let is_new = |object: &&Object| object.kind().kind != "Namespace" && !is_there(object);
        let objects: Vec<Object> = all.objects().iter().filter(is_new).cloned().collect();
        parts.push(Part::new(component, objects));
    }
    Ok(parts)
}

/// The namespaces of topology updater and scheduler.
fn namespaces(options: &Options) -> (&str, &str) {
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
        Component::Api => vec![Object::new(&api::crd::nrt_crd())],
        Component::Exporter => match options.updater.kind {
            Updater::Tholepin => exporter::objects(options)?,
            Updater::Rte => rte::objects(options),
            Updater::Nfd => nfd::objects(options)?,
        },
        Component::Scheduler => match options.scheduler.kind {
            Scheduler::Tholepin => scheduler::objects(options)?,
            Scheduler::Plugin => plugin::objects(options)?,
        },
    };
    Ok(Part::new(component, objects))
}

/// The number of schedulers.
fn replicas(options: &Options) -> Result<i32, Error> {
    let replicas = options.scheduler.replicas;
    if replicas > 0 { Ok(replicas) } else { Err(Error::Replicas(replicas)) }
}

#[cfg(test)]
mod tests;
