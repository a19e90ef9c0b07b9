//! The specs that are run.
//!
//! In: what the command line says. Out: specs in the order of the catalogue. Never: an empty selection that looks like
//! success.

use regex_lite::Regex;

use crate::label_filter::LabelFilter;
use crate::spec::Spec;

/// Which specs are run; all conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// One of these matches the spec's line; none: every spec.
    pub focus: Vec<Regex>,
    /// None of these matches it.
    pub skip: Vec<Regex>,
    /// The labels match.
    pub filter: Option<LabelFilter>,
    /// The largest tier.
    pub tier_up_to: Option<u8>,
}

impl Selection {
    /// Whether a spec is chosen.
    #[must_use]
    pub fn has(&self, spec: &Spec) -> bool {
        let line = spec.line();
        let labels = spec.all_labels();
        (self.focus.is_empty() || self.focus.iter().any(|focus| focus.is_match(&line)))
            && !self.skip.iter().any(|skip| skip.is_match(&line))
            && self.filter.as_ref().is_none_or(|filter| filter.matches(labels.iter().map(String::as_str)))
            && self.tier_up_to.is_none_or(|tier| spec.tier.0 <= tier)
    }
}
