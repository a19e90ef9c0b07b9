//! Samples of the metrics that several programs share, for the documentation and its tests.
//!
//! In: a registry. Out: families as processes register them, each with a sample, so that an exposition shows all names
//! and labels. Never: a name or help of its own.

use prometheus_client::registry::Registry;

use crate::process_metrics::ProcessCollector;
use crate::{events, lease, tls, watch};

/// The metrics of the process itself.
pub fn process(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector));
}

/// Those of watches.
pub fn watches(registry: &mut Registry) {
    watch::Metrics::register(registry).sample();
}

/// Those of events.
pub fn events(registry: &mut Registry) {
    events::sample(registry);
}

/// Those of a lease.
pub fn lease(registry: &mut Registry) {
    lease::sample(registry);
}

/// Those of a certificate.
///
/// # Errors
/// When no certificate can be made.
pub fn certificate(registry: &mut Registry) -> Result<(), tls::Error> {
    tls::CertWatcher::new(&tls::Settings::new("", ""))?.register(registry);
    Ok(())
}
