//! Putting parts into a cluster and taking them away.

pub mod progress;
