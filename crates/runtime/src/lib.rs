//! What every tholepin process needs and no process should build twice: Kubernetes clients, watches that feed an index,
//! the leader lease, events, health and metrics over HTTP, with delegated authentication, logging, shutdown, standard
//! output and its formats, YAML.
//!
//! In: flags and files of the process, the Kubernetes API. Out: values and streams for the crates above.
//! Never: a rule of the domain. Nothing here knows what a NUMA zone, a topology object or a scheduling
//! decision is.

pub mod atomic_file;
pub mod backoff;
pub mod client;
pub mod delegated_auth;
pub mod events;
pub mod glob;
pub mod goflag;
pub mod host;
pub mod http;
pub mod lease;
pub mod log;
pub mod output;
pub mod page_reclaim;
pub mod process_metrics;
pub mod random;
pub mod ready;
pub mod ring_log;
pub mod shutdown;
pub mod specimen;
pub mod status;
pub mod stderr;
pub mod stdout;
pub mod tls;
pub mod token_bucket;
pub mod watch;
pub mod wire;
pub mod yaml;
