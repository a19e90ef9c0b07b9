//! The images that may run as scheduler.
//!
//! In: the built-in list, variables, names of images. Out: the trusted images; mistakes in a name. Never: a registry.
//!
//! A scheduler decides where all pods run, so the Go operator accepts only images with known digests. This one does
//! too, and accepts its own image, which contains a scheduler. An image that runs already stays (`setup`).

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde::Deserialize;

use crate::cluster_state::{Image, Trust};

/// The built-in list of trusted digests, as `getdigests` writes it. It is empty: our own image needs no digest, and a
/// cluster's owner chooses others.
pub const EMBEDDED_DIGESTS: &str = include_str!("trusted-digests.json");

/// The variable with more digests.
const VARIABLE: &str = "SCHEDULER_IMAGE_DIGESTS";

/// The list of digests that `getdigests` writes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct List {
    /// The digests of this version's channel.
    current_channel: Option<Vec<String>>,
    /// The last digest of the former channel.
    prev_channel_last: Option<String>,
    /// The last digest of the channel with extended support.
    eus_channel_last: Option<String>,
}

/// The trusted images: the digests of `list` (JSON) and of `digests` (`SCHEDULER_IMAGE_DIGESTS`, separated by commas),
/// and the image `own`. `None` is all images, if `validation` (`SCHEDULER_IMAGE_VALIDATION`) is exactly `false`. The
/// texts are warnings about invalid digests, which are left out.
///
/// # Errors
/// When the list cannot be read.
pub fn trust(
    list: &str,
    validation: Option<&str>,
    digests: Option<&str>,
    own: &Image,
) -> anyhow::Result<(Option<Trust>, Vec<String>)> {
    if validation == Some("false") {
        return Ok((None, Vec::new()));
    }
    let list: List = serde_json::from_str(list).context("trusted digests")?;
    let built_in = list.current_channel.into_iter().flatten();
    let built_in = built_in.chain(list.prev_channel_last).chain(list.eus_channel_last);
    let added = digests.unwrap_or_default().split(',').map(str::to_owned);
    let named =
        built_in.map(|digest| ("built-in list", digest)).chain(added.map(|digest| (VARIABLE, digest)));
    let mut warnings = Vec::new();
    let mut trusted = BTreeSet::new();
    for (from, digest) in named {
        let digest = digest.trim();
        if is_digest(digest) {
            trusted.insert(digest.to_owned());
        } else if !digest.is_empty() {
            warnings.push(format!("{from}: {digest:?} is left out: it must be {DIGEST}"));
        }
    }
    let images = Some(own.name.clone()).filter(|name| !name.is_empty()).into_iter().collect();
    Ok((Some(Trust { digests: trusted, images }), warnings))
}

/// Checks that an image may run as scheduler.
///
/// # Errors
/// The reason against it, in the Go operator's words.
pub(super) fn check(image: &str, trust: &Trust) -> Result<(), String> {
    if trust.images.contains(image) {
        return Ok(());
    }
    let Some((_, digest)) = image.split_once('@') else {
        return Err(format!("scheduler image {image:?} must be referenced by digest, not by tag"));
    };
    if !is_digest(digest) {
        return Err(format!(
            "scheduler image {image:?} has malformed digest {digest:?}; it must be {DIGEST}"
        ));
    }
    if !trust.digests.contains(digest) {
        return Err(format!(
            "scheduler image {image:?}: the digest is not in the trusted list; the operator's variable {VARIABLE} adds to it"
        ));
    }
    Ok(())
}

/// The form of a digest.
const DIGEST: &str = "sha256: and 64 hexadecimal digits in lower case";

fn is_digest(text: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_hex))
}

#[cfg(test)]
mod tests;
