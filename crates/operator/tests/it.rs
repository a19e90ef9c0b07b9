//! The operator on real clusters.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests"
)]

#[path = "it/engine.rs"]
mod engine;
#[path = "it/parity.rs"]
mod parity;
#[path = "it/process.rs"]
mod process;
