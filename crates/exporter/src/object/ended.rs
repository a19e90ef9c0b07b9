//! Containers that have ended, which the kubelet's managers forget later than podresources does.
//!
//! In: the content, the stored object. Out: the content with the stored object's word on what containers hold, where
//! only ended containers are missing in ours. Never: a change of a number.
//!
//! A manager forgets an ended container at the next admission, or after 10 s. To say so alone would be a third write
//! for each pod, and readers that know the pods of the node learn nothing from it.

use api::nrt::attribute;
use topology::placement::holdings::Holdings;

use super::*;

/// What follows from the holdings of containers, by zone.
const BY_ZONE: [&str; 2] = [keys::ZONE_ATTRIBUTE_FREE_CPUS, keys::ZONE_ATTRIBUTE_MEMORY_GROUP];

impl Content {
    /// The content with the containers that the stored object has besides ours; `None` if it has no others,
    /// or not all of ours.
    pub(super) fn with_ended(&self, stored: &NodeResourceTopology) -> Option<Self> {
        let read = |attributes: &[Attribute]| {
            Holdings::decode(attribute::get(attributes, keys::ATTRIBUTE_HOLDINGS)?).ok()
        };
        let (ours, theirs) = (read(&self.attributes)?, read(&stored.attributes)?);
        if theirs.len() == ours.len() || !theirs.contains(&ours) {
            return None;
        }
        let mut content = self.clone();
        copy(&mut content.attributes, &stored.attributes, keys::ATTRIBUTE_HOLDINGS);
        for (zone, stored) in content.zones.iter_mut().zip(&stored.zones) {
            BY_ZONE.into_iter().for_each(|name| copy(&mut zone.attributes, &stored.attributes, name));
        }
        Some(content)
    }
}

/// Takes over one attribute, or its absence.
fn copy(into: &mut Vec<Attribute>, from: &[Attribute], name: &str) {
    match attribute::get(from, name) {
        Some(value) => attribute::insert(into, name, value),
        None => attribute::delete_all(into, name),
    }
}
