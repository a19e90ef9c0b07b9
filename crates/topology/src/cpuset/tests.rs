use super::*;

#[test]
fn lists_print_canonically() {
    for (text, canonical, len) in [
        ("", "", 0),
        ("\n", "", 0),
        ("0", "0", 1),
        ("0-3,8,10-11\n", "0-3,8,10-11", 7),
        ("11,10,8,3,2,1,0", "0-3,8,10-11", 7),
        ("0-3,2-5", "0-5", 6),
        ("7,7", "7", 1),
        ("62-66", "62-66", 5),
        ("5-5", "5", 1),
        ("8191", "8191", 1),
        ("007", "7", 1),
    ] {
        let set = CpuSet::parse(text).unwrap();
        assert_eq!((set.to_string().as_str(), set.len()), (canonical, len), "{text:?}");
        assert_eq!(CpuSet::parse(canonical).unwrap(), set, "{text:?}");
        assert_eq!(CpuSet::from_ids(set.iter()).unwrap(), set, "{text:?}");
    }
}

#[test]
fn bad_lists_name_the_part() {
    let part = |text: &str| CpuSetError::Part(text.to_owned());
    for (text, error) in [
        ("a", part("a")),
        ("1,,2", part("")),
        ("1,", part("")),
        ("-1", part("-1")),
        ("1-", part("1-")),
        ("1-2-3", part("1-2-3")),
        ("1 2", part("1 2")),
        ("+1", part("+1")),
        ("0x1", part("0x1")),
        ("0-31:2/4", part("0-31:2/4")),
        ("\u{665}", part("\u{665}")),
        ("3-1", CpuSetError::Backwards(3, 1)),
        ("8192", CpuSetError::TooLarge(8_192)),
        ("0-4294967296", CpuSetError::TooLarge(4_294_967_296)),
        ("99999999999999999999", CpuSetError::TooLarge(u64::MAX)),
    ] {
        assert_eq!(CpuSet::parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn set_operations() {
    let set = |text| CpuSet::parse(text).unwrap();
    let (a, b) = (set("0-3,64,200"), set("2-5,64"));
    assert_eq!(a.union(&b), set("0-5,64,200"));
    assert_eq!(a.intersection(&b), set("2-3,64"));
    assert_eq!(a.difference(&b), set("0-1,200"));
    assert_eq!(b.difference(&a), set("4-5"));
    assert!(set("2,64").is_subset(&a) && !a.is_subset(&b) && CpuSet::new().is_subset(&b));
    assert!(set("6-9").is_disjoint(&a) && !a.is_disjoint(&b));
    assert_eq!((a.first(), CpuSet::new().first()), (Some(0), None));
}

#[test]
fn insert_and_remove_keep_equality() {
    let mut set = CpuSet::new();
    assert_eq!((set.insert(300), set.insert(300), set.insert(1)), (Ok(true), Ok(false), Ok(true)));
    assert_eq!(set.insert(8_192), Err(CpuSetError::TooLarge(8_192)));
    assert!(set.contains(300) && !set.contains(299) && !set.contains(u32::MAX));
    assert!(set.remove(300) && !set.remove(300) && !set.remove(u32::MAX));
    assert_eq!(set, CpuSet::parse("1").unwrap());
    assert!(set.remove(1) && set.is_empty());
    assert_eq!(set, CpuSet::new());
}
