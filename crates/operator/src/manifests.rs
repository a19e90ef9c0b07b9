//! The operator's own objects: what has to be in a cluster so that it runs there, as functions of the options.
//!
//! In: [`Options`]. Out: typed objects, one by one and, in the order in which they are made, all together. Never: what the operator makes
//! itself, a right that [`crate::rbac`] does not list, a template, a cluster, a clock: the same options give the same bytes.
//!
//! Names are those of the Go operator, so that what is applied replaces it, and its objects stay where they are.

use deployer::manifests::Error;
use deployer::manifests::access::Account;
use deployer::object::Object;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub mod access;
pub mod deployment;
pub mod monitoring;
pub mod namespace;
pub mod network;
pub mod samples;
pub mod users;

/// The usual namespace.
pub const NAMESPACE: &str = "numaresources";
/// The name of its Deployment and of its service account.
pub const NAME: &str = "numaresources-controller-manager";

/// What can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where it runs; its operands run there too.
    pub namespace: String,
    /// Choices that all programs have: platform, image, network policies. What they say of updater and scheduler does not matter here.
    pub common: deployer::options::Options,
    /// Whether there are objects for the Prometheus operator. OpenShift has one.
    pub monitoring: bool,
}

impl Default for Options {
    fn default() -> Self {
        let common = deployer::options::Options::default();
        Self { namespace: NAMESPACE.to_owned(), common, monitoring: false }
    }
}

impl Options {
    /// Its service account.
    #[must_use]
    pub fn account(&self) -> Account<'_> {
        Account { namespace: &self.namespace, name: NAME }
    }
}

/// All of its objects, in the order in which they are made.
///
/// # Errors
/// Never in practice.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let mut objects = Vec::new();
    for definition in definitions() {
        objects.push(Object::new(&definition)?);
    }
    objects.push(Object::new(&namespace::namespace(options))?);
    if options.common.critical_quota {
        objects.push(Object::new(&deployer::manifests::meta::critical_quota(&options.namespace))?);
    }
    objects.extend(access::objects(options)?);
    for role in users::roles() {
        objects.push(Object::new(&role)?);
    }
    if options.common.network_policies {
        for policy in network::policies(options) {
            objects.push(Object::new(&policy)?);
        }
    }
    objects.push(Object::new(&deployment::service(options))?);
    objects.push(Object::new(&deployment::deployment(options))?);
    if options.monitoring {
        objects.extend(monitoring::objects(options)?);
    }
    Ok(objects)
}

/// The definitions of what it is asked with. That of NodeResourceTopology it makes itself, because it is shared with others.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [api::crd::operator_crd(), api::crd::scheduler_crd()]
}

#[cfg(test)]
pub(crate) mod referred;
#[cfg(test)]
mod tests;
