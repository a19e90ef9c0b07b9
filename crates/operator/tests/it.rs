//! The operator on real clusters.

#[path = "it/engine.rs"]
mod engine;
