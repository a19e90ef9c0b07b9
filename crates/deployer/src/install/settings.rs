//! How parts are put into a cluster or taken out of it.
//!
//! In: flags, as values. Never: what is installed; that is in the parts.

use std::time::Duration;

/// How to install or remove. The default changes the cluster, waits for nothing but definitions, and restores nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Deploy: wait until DaemonSets and Deployments run. Remove: wait until objects are gone. (Definitions are always
    /// waited for when deploying: what follows needs them.)
    pub wait: bool,
    /// The longest time between two looks at what is waited for; changes are noticed earlier.
    pub wait_interval: Duration,
    /// How long each thing that is waited for may take.
    pub wait_timeout: Duration,
    /// Change nothing.
    pub dry_run: Option<DryRun>,
    /// Deploy: on failure or cancellation restore what was there before. Waits, whatever `wait` says.
    pub atomic: bool,
    /// Deploy: take over objects that others made under a name that we need. Namespaces and
    /// CustomResourceDefinitions of others are never taken over, only used.
    pub adopt: bool,
    /// Remove: also remove namespaces of ours with objects of others in them, and definitions of ours of which others made
    /// objects.
    pub force: bool,
    /// How long one call to the API server may take, and how long one that fails in a way that passes is repeated.
    pub patience: Duration,
}

/// How much of a dry run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// Only read; whether an object would change is judged by whether the cluster's has all that ours states.
    Client,
    /// Make all calls, marked as to be forgotten: the API server validates, admits and answers as if they were not.
    ///
    /// Objects of a namespace that is not there yet are shown to it under a made-up name in the namespace `default`.
    /// Nothing is waited for.
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
