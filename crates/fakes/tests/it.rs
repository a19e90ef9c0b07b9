//! The fakes against a real API server.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see as tests")]

#[path = "it/kmm.rs"]
mod kmm;
#[path = "it/openshift.rs"]
mod openshift;
