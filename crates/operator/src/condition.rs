//! Conditions: how it is, in the words of the Go operator.
//!
//! In: a state, conditions as they were, a time. Out: conditions. Never: a clock.
