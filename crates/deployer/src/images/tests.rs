use super::*;

#[test]
fn variables_override_tags_and_digests() {
    for pullspec in [Pullspec::Tag, Pullspec::Digest] {
        let images = Images::new(pullspec, |name| (name == NFD).then(|| "here/nfd:1".to_owned()));
        assert_eq!(images.nfd, "here/nfd:1");
        let sign = if pullspec == Pullspec::Tag { ":v0.19.3" } else { "@sha256:6e9b01d6b18a" };
        assert!(images.rte.contains(sign), "{}", images.rte);
    }
    assert_eq!(Images::new(Pullspec::Tag, |_| Some(String::new())).rte, "");
}

#[test]
fn a_mirror_replaces_the_host_only() {
    let images = Images::default().mirrored("registry.example:5000/numa/");
    assert_eq!(images.nfd, "registry.example:5000/numa/nfd/node-feature-discovery:v0.15.1");
    assert_eq!(images.tholepin, concat!("registry.example:5000/numa/tholepin:", env!("CARGO_PKG_VERSION")));
    let table = [("localhost/a:1", "a:1"), ("host:5000/a", "a"), ("team/a", "team/a"), ("a", "a")];
    for (image, wanted) in table {
        assert_eq!(without_host(image), wanted, "{image}");
    }
}
