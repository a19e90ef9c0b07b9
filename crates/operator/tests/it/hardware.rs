//! The controller of DeviceConfigs on real clusters, with a double of KMM below it.
//!
//! [`scenarios`] are the ways KMM can go, [`histories`] are what people do in any order, [`whole`] is everything at
//! once with kubelets, [`claims`] is about pods that have devices by resource claims, [`openshift`] is what only
//! OpenShift has, and [`within_rights`] looks at what was asked for in all of them.

#[path = "hardware/case.rs"]
mod case;
#[path = "hardware/claims.rs"]
mod claims;
#[path = "hardware/histories.rs"]
mod histories;
#[path = "hardware/history.rs"]
mod history;
#[path = "hardware/lab.rs"]
mod lab;
#[path = "hardware/openshift.rs"]
mod openshift;
#[path = "hardware/scenarios.rs"]
mod scenarios;
#[path = "hardware/trouble.rs"]
mod trouble;
#[path = "hardware/whole.rs"]
mod whole;
#[path = "hardware/within_rights.rs"]
mod within_rights;
