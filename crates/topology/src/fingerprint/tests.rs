use super::*;

/// Reads `namespace/name` entries.
fn pairs<'a>(pods: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
    pods.iter().map(|pod| pod.split_once('/').unwrap())
}

#[test]
fn pod_hashes_equal_the_peers() {
    for (namespace, name, hash) in [
        ("ns1", "n1", 0x6fe7_d8da_4b83_52c3),
        ("ns1", "n2", 0xfdd2_50f5_ccd8_b03f),
        ("ns2", "n1", 0x98cf_f5d0_17b1_f8b1),
        ("ns3", "n1", 0x4b4a_b480_82de_0438),
        ("ns3", "n2", 0xa5e2_ddfb_bd1b_cc6d),
        ("default", "test-pod-0", 0xf1bb_0c67_299d_7810),
        ("kube-system", "coredns-0", 0x722a_4b53_43d4_6421),
        ("", "", 0xa258_d6ec_1fb5_d95c),
    ] {
        assert_eq!(PodHash::of(namespace, name), PodHash(hash), "{namespace}/{name}");
    }
}

#[test]
fn fingerprints_equal_the_peers_in_any_order() {
    let vectors: &[(&[&str], &str)] = &[
        (&[], "pfp0v001ef46db3751d8e999"),
        (&["namespace1/pod1"], "pfp0v0019e0420efb37746c6"),
        (&["default/test-pod-0"], "pfp0v001fe53c4dbd2c5f4a0"),
        (&["default/test-pod-0", "default/test-pod-0"], "pfp0v0017e488ad73adb8253"),
        (&["/"], "pfp0v001c47d32effa0690e8"),
        (&["a/bc"], "pfp0v001226f74aca223c6a2"),
        (&["ab/c"], "pfp0v001f981c6658579a9de"),
        (&["ns-1/pod-1", "ns-2/pod-2", "ns-2/pod-3"], "pfp0v0013b68d754c0817837"),
        (&["ns1/n1", "ns1/n2", "ns2/n1", "ns3/n1", "ns3/n2"], "pfp0v001b92008c14168b3a6"),
        (
            &["production/jaeger-dpgjk", "production/nginx-rt684", "production/envoy-g9m22"],
            "pfp0v001607b76a0e9d3aeb4",
        ),
        (
            &[
                "analytics/controller-69dkj",
                "kube-public/subscriber-tq6v7",
                "kube-public/transformer-hfbng",
                "kube-public/validator-c6pn5",
                "kube-system/proxy-wszrd",
                "middleware/processor-jkrl4",
                "network/gateway-vsll5",
                "network/importer-kzdfr",
                "network/importer-q5vt9",
                "staging/prometheus-bwgbn",
            ],
            "pfp0v001567144e4a561bb5a",
        ),
    ];
    for (pods, expected) in vectors {
        assert_eq!(Fingerprint::of_names(pairs(pods)).to_string(), *expected, "{pods:?}");
        let mut hashes: Vec<_> = pairs(pods).map(|(namespace, name)| PodHash::of(namespace, name)).collect();
        for _ in 0..hashes.len() {
            hashes.rotate_left(1);
            assert_eq!(Fingerprint::of(&mut hashes.clone()).to_string(), *expected, "{pods:?}");
        }
        assert_eq!(Fingerprint::parse(expected), Ok(Fingerprint::of(&mut hashes)), "{expected}");
    }
}

#[test]
fn texts_are_checked_in_the_peers_order() {
    let malformed = |text: &str| FingerprintError::Malformed(text.to_owned());
    for text in [
        "",
        "x",
        "wrngv001e477a4e3b2fc0ec6",
        "pfp0vX",
        "pfp0v000e477",
        "pfp0v001e477a4e3b2fc0ec",
        "pfp0v001e477a4e3b2fc0ec60",
        "pfp0v001E477A4E3B2FC0EC6",
        "pfp0v001+477a4e3b2fc0ec6",
        "pfp0v00\u{e9}e477a4e3b2fc0e",
    ] {
        assert_eq!(Fingerprint::parse(text), Err(malformed(text)));
    }
    for (text, version) in [
        ("pfp0v000e477a4e3b2fc0ec6", "v000"),
        ("pfp0xxxxe477a4e3b2fc0ec6", "xxxx"),
        ("pfp0v002e477a4e3", "v002"),
    ] {
        assert_eq!(Fingerprint::parse(text), Err(FingerprintError::IncompatibleVersion(version.to_owned())));
    }
    let sample = "pfp0v001e477abb123fc0ec1";
    assert_eq!(Fingerprint::parse(sample).map(|f| f.to_string()), Ok(sample.to_owned()));
}

#[test]
fn versions_are_compatible_only_with_themselves() {
    assert_eq!(check_version("v001"), Ok(()));
    for text in ["", "a", "bbbbbbbb"] {
        assert_eq!(check_version(text), Err(FingerprintError::Malformed(text.to_owned())));
    }
    assert_eq!(check_version("xxxx"), Err(FingerprintError::IncompatibleVersion("xxxx".to_owned())));
}

#[test]
fn checks_distinguish_malformed_other_version_and_mismatch() {
    let ours = Fingerprint::of_names(pairs(&["ns1/n1", "ns1/n2", "ns2/n1", "ns3/n1", "ns3/n2"]));
    assert_eq!(ours.check("pfp0v001b92008c14168b3a6"), Ok(()));
    for text in ["", "x", "wrngv001b92008c14168b3a6", "pfp0vX", "pfp0v001b92008c"] {
        assert_eq!(ours.check(text), Err(FingerprintError::Malformed(text.to_owned())));
    }
    let other = Err(FingerprintError::IncompatibleVersion("v000".to_owned()));
    assert_eq!(ours.check("pfp0v000b92008c14168b3a6"), other);
    for text in ["pfp0v001e477abb123fc0ec1", "pfp0v001B92008C14168B3A6", "pfp0v001b92008c14168b3a60"] {
        let expected = text.to_owned();
        assert_eq!(ours.check(text), Err(FingerprintError::Mismatch { expected, computed: ours }));
    }
}

#[test]
fn methods_round_trip() {
    for text in ["all", "with-exclusive-resources"] {
        assert_eq!(Method::parse(text).map(Method::as_str), Some(text));
    }
    assert_eq!((Method::parse("All"), Method::parse("")), (None, None));
    assert_eq!(Method::default(), Method::All);
}

/// Names as long as those of the peers' benchmarks, in numbers that nodes have. Another program computed the values.
#[test]
fn fingerprints_of_every_size_equal_the_peers() {
    for (size, expected) in [
        (3, "pfp0v0013ae7cb9511ab7868"),
        (10, "pfp0v0012e202a5afacf00e6"),
        (20, "pfp0v001ea5770b5c76a58dd"),
        (32, "pfp0v001e01ab83646fa18b1"),
        (50, "pfp0v0012e32f8bd484e6804"),
        (100, "pfp0v001be88959e6bdbe15e"),
        (259, "pfp0v001e19fb00eeeae1538"),
        (300, "pfp0v0012b4af2663fed8b8e"),
        (500, "pfp0v001234d24fa766dea1e"),
    ] {
        let name = |at: usize| {
            (format!("{:n<52}", format!("namespace-{}-", at % 7)), format!("{:p<72}", format!("pod-{at}-")))
        };
        let pods: Vec<_> = (0..size).map(name).collect();
        let signed = |pods: &[(String, String)]| {
            Fingerprint::of_names(pods.iter().map(|(ns, name)| (ns.as_str(), name.as_str())))
        };
        assert_eq!(signed(&pods).to_string(), expected, "{size}");
        assert_eq!(signed(&pods).check(expected), Ok(()), "{size}");
        // Sizes have no factor 17, so this visits each pod once.
        let shuffled: Vec<_> = (0..size).map(|at| pods[at * 17 % size].clone()).collect();
        assert_ne!(shuffled, pods);
        assert_eq!(signed(&shuffled).to_string(), expected, "{size}");
        let mut traced = status::Status::new("");
        shuffled.iter().for_each(|(namespace, name)| traced.add(namespace, name));
        assert_eq!(traced.check(expected), Ok(()), "{size}");
        assert_ne!(signed(&pods[1..]).to_string(), expected, "{size}");
    }
}
