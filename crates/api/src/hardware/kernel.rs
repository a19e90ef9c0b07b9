//! The kernel mapping for a kernel.
//!
//! In: mappings, and a kernel's version as in `node.status.nodeInfo.kernelVersion`. Out: the first mapping that
//! matches. Never: an invalid expression treated as one that does not match.

use regex_lite::Regex;

use super::KernelMapping;

/// An invalid regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.kernelMappings[{index}].regexp {regexp:?} is no regular expression: {why}")]
pub struct KernelError {
    /// Index of the mapping, from 0.
    pub index: usize,
    /// The expression.
    pub regexp: String,
    /// The reason.
    pub why: String,
}

/// The index of the first mapping that matches a kernel, by KMM's rules: one `+` at the end of the version is ignored,
/// literals match the whole version, and expressions match anywhere in it.
///
/// # Errors
/// When an expression before the first match is invalid.
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
