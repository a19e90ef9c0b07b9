//! Kubernetes objects: kinds, ownership, equality, decisions, and their application to a cluster.
//!
//! In: objects as they are desired, objects as the API server has them. Out: decisions, writes, and the controller runtime that
//! repeats both. Never: a rule of one controller.
//!
//! | module | concern |
//! |---|---|
//! | [`kind`], [`object`] | which object: [`ObjectKind`], [`ObjectKey`], [`Object`] |
//! | [`observed`] | the newest known state of many objects: [`ObservedObjects`] |
//! | [`equality`], [`managed_fields`] | whether an object is as desired |
//! | [`client`] | calls to the API server, repeated while that may help: [`ApiServer`] |

pub mod client;
pub mod equality;
pub mod kind;
pub mod managed_fields;
pub mod object;
pub mod observed;

pub use client::{ApiServer, CallError, Force};
pub use kind::ObjectKind;
pub use object::{Object, ObjectKey};
pub use observed::ObservedObjects;
