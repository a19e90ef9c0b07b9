//! The operator on real clusters.
