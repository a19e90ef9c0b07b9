//! Settings of a deployment or removal.
//!
//! In: values of flags. Out: plain values. Never: what is installed; see [`crate::part`].

use std::time::Duration;

/// Settings of a deployment or removal. The default changes the cluster, waits for definitions only, and does not roll
/// back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Deploy: wait until DaemonSets and Deployments are ready. Remove: wait until objects are gone. A deployment
    /// always waits for definitions, because the objects after them need them.
    pub wait: bool,
    /// The longest time between two reads while waiting; a watch notices changes earlier.
    pub wait_interval: Duration,
    /// The time limit of each wait.
    pub wait_timeout: Duration,
    /// Change nothing; `None`: change the cluster.
    pub dry_run: Option<DryRun>,
    /// Deploy: on failure or cancellation restore the previous state. Implies `wait`.
    pub atomic: bool,
    /// Deploy: take over objects of others whose names are needed. Namespaces and CustomResourceDefinitions of others
    /// are only used.
    pub adopt: bool,
    /// Remove: remove also our namespaces that have objects of others, and our definitions that have objects.
    pub force: bool,
    /// How long a call to the API server is retried after transient failures.
    pub patience: Duration,
}

/// The kind of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DryRun {
    /// Only read: an object would change if the cluster's lacks a value that ours states.
    Client,
    /// Send all requests with `dryRun=All`: the API server validates, admits and answers, but stores nothing.
    ///
    /// An object whose namespace does not exist yet is sent with a generated name in the namespace `default`. There are
    /// no waits.
    Server,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: false,
            wait_interval: Duration::from_secs(2),
            wait_timeout: Duration::from_secs(120),
            dry_run: None,
            atomic: false,
            adopt: false,
            force: false,
            patience: Duration::from_secs(30),
        }
    }
}
