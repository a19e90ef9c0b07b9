//! Constraints of a claim: its devices have an attribute in common, or apart.
//!
//! Source: kube-scheduler 1.36 `matchAttributeConstraint` and `distinctAttributeConstraint`. Cost: the devices chosen
//! so far.

use std::collections::BTreeMap;

use crate::devices::views::claim::{Constraint, ConstraintKind};
use crate::devices::views::{Attribute, Device};

/// The devices chosen so far, as one constraint sees them.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    constraint: &'a Constraint,
    /// The number of devices that it is about.
    count: usize,
    /// The value that `matchAttribute` wants.
    first: Option<&'a Attribute>,
    /// Values that `distinctAttribute` does not want again: the last of each request. One that is taken back is
    /// forgotten with its request, as in kube-scheduler.
    last: BTreeMap<&'a str, &'a Attribute>,
}

impl<'a> Chosen<'a> {
    pub(super) fn new(constraint: &'a Constraint) -> Self {
        Self { constraint, count: 0, first: None, last: BTreeMap::new() }
    }

    /// Adds a device for a request, and for a subrequest if that is one. Returns whether it may be chosen.
    pub(super) fn add(&mut self, request: &'a str, subrequest: Option<&str>, device: &'a Device) -> bool {
        if !self.is_about(request, subrequest) {
            return true;
        }
        let is_known = |value: &Attribute| !matches!(value, Attribute::Unsupported);
        match &self.constraint.kind {
            ConstraintKind::Match(name) => {
                let Some(value) = device.attributes.get(name) else { return false };
                if self.count == 0 {
                    self.first = Some(value);
                } else if !is_known(value) || self.first != Some(value) {
                    return false;
                }
            }
            ConstraintKind::Distinct(name) => {
                let Some(value) = device.attributes.get(name) else { return false };
                let is_other = |other: &&Attribute| is_known(value) && *other != value;
                if self.count > 0 && !self.last.values().all(is_other) {
                    return false;
                }
                self.last.insert(request, value);
            }
            ConstraintKind::Unknown => return false,
        }
        self.count += 1;
        true
    }

    /// Takes [`Self::add`] back.
    pub(super) fn remove(&mut self, request: &str, subrequest: Option<&str>) {
        if self.is_about(request, subrequest) {
            self.last.remove(request);
            self.count = self.count.saturating_sub(1);
        }
    }

    fn is_about(&self, request: &str, subrequest: Option<&str>) -> bool {
        let names = &self.constraint.requests;
        names.is_empty()
            || names.iter().any(|name| {
                let of_subrequest = name
                    .split_once('/')
                    .is_some_and(|(one, other)| one == request && Some(other) == subrequest);
                name == request || of_subrequest
            })
    }
}
