//! The tools against real Kubernetes parts.
