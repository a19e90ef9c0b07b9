//! `tholepin operator`.
//!
//! In: a command line. Out: settings. Never: a rule.
