//! The operator as a process: lease, watches, controllers, health and metrics.
//!
//! In: settings, a signal to stop. Out: an exit. Never: a rule.
