//! The deployer against real Kubernetes parts.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests"
)]

#[path = "it/detect.rs"]
mod detect;
#[path = "it/install.rs"]
mod install;
#[path = "it/manifests.rs"]
mod manifests;
#[path = "it/validate.rs"]
mod validate;
