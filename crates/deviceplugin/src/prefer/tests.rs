use proptest::prelude::*;

use super::*;

/// Device and zones of each id.
type Known = BTreeMap<String, (String, Vec<u32>)>;

fn candidate<'a>(known: &'a Known) -> impl Fn(&str) -> Option<Candidate<'a>> {
    |id| known.get(id).map(|(device, zones)| Candidate { device, zones })
}

/// Ids as `id zones`, with a device each; `id:device zones` for shares.
fn known(devices: &[&str]) -> Known {
    let fact = |text: &&str| {
        let (name, zones) = text.split_once(' ').unwrap();
        let (id, device) = name.split_once(':').unwrap_or((name, name));
        let zones = zones.split(',').filter_map(|zone| zone.parse().ok()).collect();
        (id.to_owned(), (device.to_owned(), zones))
    };
    devices.iter().map(fact).collect()
}

fn owned(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[track_caller]
fn check(devices: &[&str], available: &str, required: &str, size: usize, policy: Policy, wanted: &str) {
    let known = known(devices);
    let all: Vec<String> = known.keys().cloned().collect();
    let available = if available == "*" { all } else { owned(available) };
    let got = prefer(candidate(&known), &available, &owned(required), size, policy);
    let got = got.map_or_else(|refusal| refusal.to_string(), |ids| ids.join(" "));
    assert_eq!(got, wanted, "{size} of {available:?} with {required}, {policy:?}");
}

#[test]
fn devices_are_in_few_zones_packed_or_spread() {
    let two = &["a 0", "b 0", "c 1", "d 1", "e 1"];
    check(two, "*", "", 2, Policy::Packed, "a b");
    check(two, "*", "", 2, Policy::Spread, "c d");
    check(two, "*", "", 3, Policy::Packed, "c d e");
    check(two, "*", "", 4, Policy::Packed, "a b c d");
    check(two, "*", "c", 2, Policy::Packed, "c d");
    check(two, "*", "a d", 3, Policy::Packed, "a b d");
    check(two, "a c d", "", 1, Policy::Packed, "a");
    check(two, "a c d", "", 2, Policy::Packed, "c d");
    check(two, "*", "", 0, Policy::Packed, "");
    // Of equal zones the lowest; digits in ids count as numbers.
    check(
        &["x-9 1", "x-10 1", "x-2 1", "y 0", "z 0", "w 0"],
        "x-9 x-10 x-2",
        "",
        2,
        Policy::Packed,
        "x-2 x-9",
    );
    check(&["a 1", "b 1", "c 0", "d 0"], "*", "", 1, Policy::Packed, "c");
}

#[test]
fn devices_with_several_zones_or_none() {
    check(&["a 0", "b 0,1", "c 1"], "*", "", 2, Policy::Packed, "a b");
    check(&["a 0,1", "b 0,1", "c 2", "d 2", "e 2"], "*", "", 2, Policy::Packed, "a b");
    // Close devices come first, but one without a zone before one of another zone.
    check(&["a 0", "b 0", "c -"], "*", "", 2, Policy::Packed, "a b");
    check(&["a 0", "b 1", "c -"], "*", "a", 2, Policy::Packed, "a c");
    check(&["a -", "b -"], "*", "", 1, Policy::Spread, "a");
    // More zones than the exact search tries.
    let many: Vec<String> = (0..40).map(|n| format!("d{n} {}", n / 2)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    check(&many, "*", "d7", 2, Policy::Packed, "d6 d7");
}

#[test]
fn shares_are_packed_or_spread_over_devices() {
    let shares = &["a0:a 0", "a1:a 0", "a2:a 0", "b0:b 0", "b1:b 0", "b2:b 0"];
    check(shares, "*", "", 2, Policy::Spread, "a0 b0");
    check(shares, "*", "", 2, Policy::Packed, "a0 a1");
    check(shares, "a0 a1 a2 b1", "", 1, Policy::Packed, "b1");
    check(shares, "a0 a1 a2 b1", "", 1, Policy::Spread, "a0");
    check(shares, "*", "b1", 2, Policy::Packed, "b0 b1");
    check(shares, "*", "b1", 2, Policy::Spread, "a0 b1");
}

#[test]
fn impossible_requests_are_refused() {
    let two = &["a 0", "b 1"];
    check(two, "*", "", 3, Policy::Packed, "2 devices are available for an allocation of 3");
    check(two, "*", "a b", 1, Policy::Packed, "2 devices must be included in an allocation of 1");
    check(two, "a", "b", 1, Policy::Packed, "device \"b\" must be included and is not available");
    check(two, "*", "z", 1, Policy::Packed, "device \"z\" must be included and is unknown or unhealthy");
    // Unknown ids are skipped: a hint must not fail a pod that could run.
    check(two, "a z", "", 1, Policy::Packed, "a");
    check(two, "a z", "", 2, Policy::Packed, "1 devices are available for an allocation of 2");
    // Repeated ids count once.
    check(two, "a a", "", 2, Policy::Packed, "1 devices are available for an allocation of 2");
    check(two, "*", "a a", 1, Policy::Packed, "a");
}

/// The fewest zones that any choice needs, by trying every choice.
fn fewest(known: &Known, available: &[String], required: &[String], size: usize) -> usize {
    let zones: Vec<u32> = (0..5).collect();
    let covers = |set: u32, id: &String| {
        let of = &known[id].1;
        of.is_empty() || of.iter().any(|zone| set & 1 << zones[*zone as usize] != 0)
    };
    let enough = |set: &u32| {
        required.iter().all(|id| covers(*set, id))
            && available.iter().filter(|id| covers(*set, id)).count() >= size
    };
    (0_u32..1 << zones.len()).filter(enough).map(|set| set.count_ones() as usize).min().unwrap()
}

proptest! {
    #[test]
    fn preferences_are_exact_compact_and_order_independent(
        zones in prop::collection::vec(prop::collection::btree_set(0_u32..5, 0..3), 1..12),
        picks in prop::collection::vec(any::<(bool, bool)>(), 12),
        shared in 1_usize..4, size in 0_usize..14, spread in any::<bool>(), seed in any::<u64>(),
    ) {
        let policy = if spread { Policy::Spread } else { Policy::Packed };
        let share = |n: usize| {
            // Shares of one device have the same zones.
            let zones = zones[n / shared * shared].iter().copied().collect();
            (format!("s{n}"), (format!("d{}", n / shared), zones))
        };
        let known: Known = (0..zones.len()).map(share).collect();
        let (mut available, mut required) = (Vec::new(), Vec::new());
        for (id, (free, must)) in known.keys().zip(&picks) {
            if *free {
                available.push(id.clone());
                if *must && required.len() < 3 {
                    required.push(id.clone());
                }
            }
        }
        let answer = prefer(candidate(&known), &available, &required, size, policy);
        if required.len() > size || available.len() < size {
            prop_assert!(answer.is_err());
            return Ok(());
        }
        let answer = answer.unwrap();
        prop_assert_eq!(answer.len(), size);
        prop_assert!(answer.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(answer.iter().all(|id| available.contains(id)));
        prop_assert!(required.iter().all(|id| answer.contains(id)));
        // No more zones than necessary.
        let least = fewest(&known, &available, &required, size);
        prop_assert!(fewest(&known, &answer, &answer, size) <= least, "{answer:?}");
        // The order of the question does not matter.
        let turn = seed as usize % available.len().max(1);
        available.rotate_left(turn);
        required.reverse();
        prop_assert_eq!(prefer(candidate(&known), &available, &required, size, policy), Ok(answer));
    }
}
