//! The Go operator's command line.
//!
//! In: its flags and variables. Out: the same settings as [`crate::cli`]. Never: a rule.
