use super::*;
use proptest::prelude::*;

/// `default/pod-a/c1 0` as a container and its zone.
fn container(text: &str) -> (ContainerHash, ZoneId) {
    let (names, zone) = text.split_once(' ').unwrap();
    let names: Vec<_> = names.split('/').collect();
    (ContainerHash::of(names[0], names[1], names[2]), ZoneId(zone.parse().unwrap()))
}

fn containers(texts: &[&str]) -> Vec<(ContainerHash, ZoneId)> {
    texts.iter().map(|text| container(text)).collect()
}

/// Encodes hashes 0, 1, 2, .. in these zones, as `metadata | zone=vector | ..` without the constant parts.
fn encoded(zones_of: &[u32], zones: u32) -> String {
    let containers = (0..).zip(zones_of).map(|(hash, zone)| (ContainerHash(hash), ZoneId(*zone))).collect();
    match encode(containers, zones) {
        Ok(Vectors { metadata, zones }) => {
            let vectors = zones.iter().map(|(zone, text)| format!(" | {}={text}", zone.0));
            metadata.strip_prefix("npv0v001::ve=leb89::").unwrap().to_owned() + &vectors.collect::<String>()
        }
        Err(error) => error.to_string(),
    }
}

const FIVE: [&str; 5] = [
    "default/pod-a/c1 0",
    "default/pod-a/c2 0",
    "default/pod-b/c1 1",
    "kube-system/pod-c/main 1",
    "ns1/pod-d/main 1",
];

#[test]
fn placements_are_written_as_the_peers_do() {
    let mut five = containers(&FIVE);
    let vectors = encode(five.clone(), 2).unwrap();
    assert_eq!(vectors.metadata, "npv0v001::ve=leb89::cc=5::nn=2::bn=1");
    assert_eq!(vectors.zones, [(ZoneId(0), "##".to_owned())]);
    five.sort_unstable();
    let sorted: Vec<_> = five.iter().map(|(hash, zone)| format!("{:016x} {}", hash.0, zone.0)).collect();
    assert_eq!(
        sorted,
        [
            "029ec313dc36ba9c 1",
            "3a90e1ffc72f1ae6 0",
            "9e9700eebf4587f2 0",
            "cec2c8887646ded0 1",
            "fbb229e5a85af028 1",
        ]
    );
}

#[test]
fn the_busiest_zone_and_empty_ones_have_no_vector() {
    for (zones_of, zones, wanted) in [
        (&[][..], 2, "cc=0::nn=2::bn=0"),
        (&[0], 1, "cc=1::nn=1::bn=0"),
        (&[1, 1], 2, "cc=2::nn=2::bn=1"),
        (&[0, 1], 2, "cc=2::nn=2::bn=0 | 1=#"),
        (&[1, 0], 2, "cc=2::nn=2::bn=0 | 1=!"),
        (&[2, 2, 0, 1, 1], 8, "cc=5::nn=8::bn=1 | 0=$ | 2=!#"),
        (&[3, 0, 3, 0, 0, 3, 3], 4, "cc=7::nn=4::bn=3 | 0=#$#"),
        (
            &[0, 2],
            2,
            "wrong NUMA affinity: zone 2 of a node with 2 zones; only ids below that can be written",
        ),
        (&[], 0, "inconsistent NUMA node count: 0; expected at least 1"),
    ] {
        assert_eq!(encoded(zones_of, zones), wanted, "{zones_of:?} of {zones}");
    }
}

#[test]
fn hashes_that_collide_are_refused() {
    let twice =
        vec![(ContainerHash(7), ZoneId(0)), (ContainerHash(1), ZoneId(0)), (ContainerHash(7), ZoneId(1))];
    assert_eq!(encode(twice.clone(), 2), Err(VectorError::Collision(ContainerHash(7))));
    let same = vec![twice[0], twice[0]];
    assert_eq!(encode(same, 2), Err(VectorError::Collision(ContainerHash(7))));
}

#[test]
fn placements_are_read_as_the_peers_do() {
    let ids =
        containers(&["ns-0/pod-0/container-0 1", "ns-0/pod-1/container-1 0", "ns-0/pod-1/container-2 1"]);
    let hashes: Vec<_> = ids.iter().map(|(hash, _)| *hash).collect();
    let zones: Vec<_> = ids.iter().map(|(_, zone)| *zone).collect();
    let vector = [(ZoneId(0), "!")];
    assert_eq!(decode("npv0v001::ve=leb89::cc=3::nn=2::bn=1", &vector, &hashes), Ok(zones.clone()));
    // Pairs in any order, the last one of a key counts; a container given twice counts once.
    let twice: Vec<_> = hashes.iter().chain(&hashes).copied().collect();
    let both: Vec<_> = zones.iter().chain(&zones).copied().collect();
    assert_eq!(decode("npv0v001::bn=0::nn=2::cc=3::bn=1::ve=leb89", &vector, &twice), Ok(both));
    assert_eq!(decode("npv0v001::ve=leb89::cc=0::nn=2::bn=0", &[], &[]), Ok(vec![]));
    // An empty vector is one of no containers.
    let one = [ContainerHash(1)];
    assert_eq!(decode("npv0v001::ve=leb89::cc=1::nn=2::bn=1", &[(ZoneId(0), "")], &one), Ok(vec![ZoneId(1)]));
}

#[test]
fn known_vectors_are_decoded() {
    for (text, offsets) in [
        ("#$'H", &[1, 3, 7, 42][..]),
        ("!''$", &[0, 4, 8, 10]),
        ("fI++", &[100, 108, 116]),
        ("gk3+", &[2000, 2008]),
    ] {
        let hashes: Vec<_> = (0..2009).map(ContainerHash).collect();
        let zones = decode("npv0v001::ve=leb89::cc=2009::nn=2::bn=1", &[(ZoneId(0), text)], &hashes).unwrap();
        let there: Vec<_> = (0..2009).filter(|at| zones[*at] == ZoneId(0)).collect();
        assert_eq!(there, offsets, "{text}");
    }
}

/// Each contradiction is refused with the peers' words. All cases have three containers.
#[test]
fn contradictions_are_refused() {
    let hashes = [ContainerHash(10), ContainerHash(20), ContainerHash(30)];
    for (metadata, vectors, message) in [
        ("", &[][..], "malformed metadata: "),
        ("ve=leb89::cc=3::nn=2::bn=0", &[], "malformed metadata: "),
        ("XXXXv001::ve=leb89::cc=3::nn=2::bn=0", &[], "malformed metadata: "),
        ("npv0v999::ve=leb89::cc=3::nn=2::bn=0", &[], "malformed metadata: "),
        ("npv0v001ve=leb89::cc=3::nn=2::bn=0", &[], "malformed metadata: "),
        ("npv0v001::", &[], "malformed metadata pair \"\""),
        ("npv0v001::ve=leb89::cc3::nn=2::bn=0", &[], "malformed metadata pair \"cc3\""),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=0::", &[], "malformed metadata pair \"\""),
        ("npv0v001::ve=leb89::=3::nn=2::bn=0", &[], "missing metadata key in \"=3\""),
        ("npv0v001::ve=leb89::cc=::nn=2::bn=0", &[], "missing metadata value in \"cc=\""),
        ("npv0v001::ve=leb89::cc=abc::nn=2::bn=0", &[], "error while parsing \"cc=abc\""),
        ("npv0v001::ve=leb89::cc=9223372036854775808::nn=2::bn=0", &[], "error while parsing \"cc=9"),
        ("npv0v001::ve=leb89::cc=3::nn=2::xx=0", &[], "unknown metadata field \"xx\""),
        ("npv0v001::cc=3::nn=2::bn=0", &[], "unsupported vector encoding \"\""),
        ("npv0v001::ve=leb90::cc=3::nn=2::bn=0", &[], "unsupported vector encoding \"leb90\""),
        ("npv0v001::ve=leb89::cc=3::nn=2", &[], "unknown busiest node"),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=-1", &[], "unknown busiest node"),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=-2", &[], "inconsistent busiest node data"),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=2", &[], "inconsistent busiest node data"),
        ("npv0v001::ve=leb89::cc=3::bn=0", &[], "inconsistent busiest node data"),
        ("npv0v001::ve=leb89::cc=3::nn=0::bn=0", &[], "inconsistent busiest node data"),
        ("npv0v001::ve=leb89::cc=3::nn=9223372036854775807::bn=4294967296", &[], "inconsistent busiest"),
        ("npv0v001::ve=leb89::cc=3::nn=1::bn=0", &[(1, "!")], "inconsistent NUMA vector data"),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=0", &[(0, "!")], "corrupted NUMA vector: zone 0"),
        ("npv0v001::ve=leb89::nn=2::bn=0", &[], "inconsistent container set: 0 containers, cc=-1"),
        ("npv0v001::ve=leb89::cc=0::nn=2::bn=0", &[(1, "!")], "inconsistent NUMA vector data"),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=0", &[(2, "!")], "corrupted NUMA vector: zone 2"),
        ("npv0v001::ve=leb89::cc=3::nn=4::bn=0", &[(1, "!"), (1, "#")], "corrupted NUMA vector: zone 1"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", &[], "inconsistent container set: 3 containers, cc=2"),
        ("npv0v001::ve=leb89::cc=4::nn=2::bn=0", &[], "inconsistent container set: 3 containers, cc=4"),
        (
            "npv0v001::ve=leb89::cc=3::nn=2::bn=0",
            &[(1, "$#")],
            "corrupted NUMA vector of zone 1: offset 3 of 3",
        ),
        (
            "npv0v001::ve=leb89::cc=3::nn=2::bn=0",
            &[(1, "\u{e9}")],
            "corrupted NUMA vector of zone 1: byte 0xc3",
        ),
        (
            "npv0v001::ve=leb89::cc=3::nn=2::bn=0",
            &[(1, "!f")],
            "corrupted NUMA vector of zone 1: the text ends",
        ),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=0", &[(1, "!!")], "duplicated data in multiple NUMA vectors"),
        ("npv0v001::ve=leb89::cc=3::nn=3::bn=0", &[(1, "#"), (2, "!#")], "duplicated data in multiple NUMA"),
    ] {
        let vectors: Vec<_> = vectors.iter().map(|(zone, text)| (ZoneId(*zone), *text)).collect();
        let error = decode(metadata, &vectors, &hashes).expect_err(metadata).to_string();
        assert!(error.starts_with(message), "{metadata} {vectors:?}: {error}");
    }
}

prop_compose! {
    /// A node's containers, each hash once, in zones 0 to `zones - 1`.
    fn node()(zones in 1_u32..12)(
        containers in proptest::collection::btree_map(any::<u64>(), 0..zones, 0..200),
        zones in Just(zones),
    ) -> (Vec<(ContainerHash, ZoneId)>, u32) {
        (containers.into_iter().map(|(hash, zone)| (ContainerHash(hash), ZoneId(zone))).collect(), zones)
    }
}

proptest! {
    #[test]
    fn encoding_and_decoding_round_trip((containers, zones) in node(), turn in any::<prop::sample::Index>()) {
        let written = encode(containers.clone(), zones).unwrap();
        let mut turned = containers.clone();
        turned.rotate_left(if containers.is_empty() { 0 } else { turn.index(containers.len()) });
        prop_assert_eq!(&encode(turned.clone(), zones).unwrap(), &written);
        let vectors: Vec<_> = written.zones.iter().map(|(zone, text)| (*zone, text.as_str())).collect();
        let (hashes, places): (Vec<_>, Vec<_>) = turned.into_iter().unzip();
        prop_assert_eq!(decode(&written.metadata, &vectors, &hashes), Ok(places));
        // Without its first container it is another node.
        if !hashes.is_empty() {
            prop_assert!(decode(&written.metadata, &vectors, &hashes[1..]).is_err());
        }
    }

    #[test]
    fn decoding_garbage_never_panics(
        metadata in "(npv0v001::)?((ve=leb89|(cc|nn|bn|xx)?=?-?[0-9]{0,3})(::)?){0,6}|.*",
        vectors in proptest::collection::vec((0_u32..6, prop_oneof!["[!-~]{0,6}", any::<String>()]), 0..4),
        count in 0_u64..5,
    ) {
        let vectors: Vec<_> = vectors.iter().map(|(zone, text)| (ZoneId(*zone), text.as_str())).collect();
        let hashes: Vec<_> = (0..count).map(ContainerHash).collect();
        if let Ok(zones) = decode(&metadata, &vectors, &hashes) {
            prop_assert_eq!(zones.len(), hashes.len());
        }
    }
}
