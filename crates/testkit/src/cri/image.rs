//! Images that exist as soon as they are named: in go names, out come ids and descriptions. Nothing is pulled,
//! stored or unpacked.

use super::api;

/// What every image weighs, in bytes: the kubelet wants more than nothing.
const SIZE: u64 = 1 << 20;

/// Any user but root, so that pods which must not run as root start.
pub(super) const USER: i64 = 65_532;

const DIGEST: &str = "sha256:";

/// Whether `reference` is an id rather than a name.
pub(super) fn is_id(reference: &str) -> bool {
    reference.starts_with(DIGEST)
}

/// A digest that depends on nothing but the name.
pub(super) fn id(name: &str) -> String {
    let hash = name.bytes().fold(0, |hash: u64, byte| scramble(hash ^ u64::from(byte)));
    let words: String = (0..4).map(|word| format!("{:016x}", scramble(hash ^ word))).collect();
    format!("{DIGEST}{words}")
}

/// The image called `name`.
pub(super) fn describe(name: &str) -> api::Image {
    let id = id(name);
    let (tags, digest) = match name.split_once('@') {
        Some(_) => (Vec::new(), name.to_owned()),
        None => (vec![name.to_owned()], format!("{}@{id}", repository(name))),
    };
    api::Image {
        id,
        repo_tags: tags,
        repo_digests: vec![digest],
        size: SIZE,
        uid: Some(api::Int64Value { value: USER }),
        username: String::new(),
        spec: Some(api::ImageSpec { image: name.to_owned(), ..api::ImageSpec::default() }),
        pinned: false,
    }
}

/// The name without its tag; a colon before the last slash belongs to a port.
fn repository(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

/// SplitMix64's finalizer: one-to-one, and neighbours come out unlike.
pub(super) fn scramble(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions() {
        let check = |name: &str, tags: &[&str], repository: &str| {
            let image = describe(name);
            assert_eq!(image.id, id(name));
            assert_eq!(image.repo_tags, tags);
            assert!(image.repo_digests[0].starts_with(&format!("{repository}@sha256:")), "{image:?}");
            assert!(is_id(&image.id) && image.id.len() == DIGEST.len() + 64 && image.size > 0, "{image:?}");
        };
        check("app", &["app"], "app");
        check("host:5000/app", &["host:5000/app"], "host:5000/app");
        check("host:5000/app:v1", &["host:5000/app:v1"], "host:5000/app");
        check("app@sha256:12", &[], "app");
        assert_ne!(id("app:v1"), id("app:v2"));
        assert_ne!(id("ab"), id("ba"));
    }
}
