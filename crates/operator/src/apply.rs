//! Makes changes.
//!
//! In: changes, an API server. Out: objects as they are afterwards. Never: a decision.
