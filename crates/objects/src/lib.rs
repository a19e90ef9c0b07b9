//! Kubernetes objects: kinds, ownership, equality, decisions, and their application to a cluster.
//!
//! In: objects as they are desired, objects as the API server has them. Out: decisions, writes, and the controller
//! runtime that repeats both. Never: a rule of one controller.
//!
//! | module | concern |
//! |---|---|
//! | [`kind`], [`object`] | which object: [`ObjectKind`], [`ObjectKey`], [`Object`] |
//! | [`observed`] | the newest known state of many objects: [`ObservedObjects`] |
//! | [`desired`] | what a controller wants: [`DesiredObject`](desired::DesiredObject) |
//! | [`ownership`] | whose an object is: one rule, with each program's marks |
//! | [`equality`], [`managed_fields`] | whether an object is as desired |
//! | [`decision`] | create, change, leave, remove or refuse, under one policy |
//! | [`client`] | calls to the API server, repeated while that may help: [`ApiServer`] |
//! | [`applier`], [`last_applied`] | plans applied until objects are as desired |
//! | [`controller`] | the controller runtime: queue by key, state, tables, retries, status, leader |

pub mod applier;
pub mod client;
pub mod controller;
pub mod decision;
pub mod desired;
pub mod equality;
pub mod kind;
pub mod last_applied;
pub mod managed_fields;
pub mod object;
pub mod observed;
pub mod ownership;

pub use client::{ApiServer, CallError, Force};
pub use kind::ObjectKind;
pub use object::{Object, ObjectKey};
pub use observed::ObservedObjects;
