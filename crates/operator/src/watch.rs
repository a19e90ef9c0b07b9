//! Keeps the world true.
//!
//! In: watches. Out: a [`crate::world::World`] and which controllers it matters to. Never: more of an object than somebody reads.
