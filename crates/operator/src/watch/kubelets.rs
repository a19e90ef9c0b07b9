//! Kubernetes: what kubelets say of themselves.
