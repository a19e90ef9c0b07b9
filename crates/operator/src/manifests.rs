//! The operator's own objects: what has to be in a cluster so that it runs there, as functions of the options.
//!
//! In: [`Options`]. Out: typed objects, one by one and, in the order in which they are made, all together. Never: what the operator makes
//! itself, a right that [`crate::rbac`] does not list, a template, a cluster, a clock: the same options give the same bytes.
//!
//! Names are those of the Go operator, so that what is applied replaces it, and its objects stay where they are.

use deployer::manifests::Error;
use deployer::manifests::access::Account;
use deployer::object::Object;

pub mod access;
pub mod deployment;
pub mod namespace;
pub mod network;

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
}

impl Default for Options {
    fn default() -> Self {
        Self { namespace: NAMESPACE.to_owned(), common: deployer::options::Options::default() }
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
    let mut objects = vec![Object::new(&namespace::namespace(options))?];
    if options.common.critical_quota {
        objects.push(Object::new(&deployer::manifests::meta::critical_quota(&options.namespace))?);
    }
    objects.extend(access::objects(options)?);
    if options.common.network_policies {
        for policy in network::policies(options) {
            objects.push(Object::new(&policy)?);
        }
    }
    objects.push(Object::new(&deployment::service(options))?);
    objects.push(Object::new(&deployment::deployment(options))?);
    Ok(objects)
}

#[cfg(test)]
mod tests;
