//! Container Device Interface specifications (1.1.0): how a container gets a device, in files that container runtimes read.
//!
//! In: specifications, as values or as files in folders. Out: the same, checked; files that are replaced as a whole. Never: a container, a
//! device, the Kubernetes API.
