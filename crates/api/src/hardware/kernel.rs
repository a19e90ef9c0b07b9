//! Which kernel mapping is for a kernel.
//!
//! In: mappings and the version of a kernel, as `node.status.nodeInfo.kernelVersion` says it. Out: the first that matches. Never: an expression
//! that cannot be read taken for one that does not match.

use regex_lite::Regex;

use super::KernelMapping;

/// A regular expression that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.kernelMappings[{index}].regexp {regexp:?} is no regular expression: {why}")]
pub struct KernelError {
    /// Which mapping's it is, from 0.
    pub index: usize,
    /// The expression.
    pub regexp: String,
    /// What is wrong with it.
    pub why: String,
}

/// The index of the mapping for a kernel. As KMM does it: one `+` at the version's end is left out, texts have to be equal, expressions are looked
/// for anywhere in the version, and the first match counts.
///
/// # Errors
/// When an expression that had to be tried cannot be read.
pub fn first_match(mappings: &[KernelMapping], kernel: &str) -> Result<Option<usize>, KernelError> {
    let kernel = kernel.strip_suffix('+').unwrap_or(kernel);
    for (index, mapping) in mappings.iter().enumerate() {
        let hit = match (&mapping.literal, &mapping.regexp) {
            (Some(literal), _) => literal == kernel,
            (None, Some(regexp)) => {
                let unread = |error: regex_lite::Error| KernelError {
                    index,
                    regexp: regexp.clone(),
                    why: error.to_string(),
                };
                Regex::new(regexp).map_err(unread)?.is_match(kernel)
            }
            (None, None) => false,
        };
        if hit {
            return Ok(Some(index));
        }
    }
    Ok(None)
}
