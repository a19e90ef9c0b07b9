use super::*;

/// One line as the table writes it, computed by us.
fn recompute(text: &str) -> String {
    match GoDuration::parse(text) {
        Ok(duration) => format!("{text}\t{}\t{duration}", duration.0),
        Err(GoDurationError::MissingUnit(_)) => format!("{text}\tmissing"),
        Err(GoDurationError::UnknownUnit { .. }) => format!("{text}\tunknown"),
        Err(GoDurationError::Form(_) | GoDurationError::Range(_)) => format!("{text}\tinvalid"),
    }
}

#[test]
fn agrees_with_go() {
    let rows: Vec<_> = include_str!("vectors.tsv").lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() > 200);
    for row in rows {
        assert_eq!(recompute(row.split('\t').next().unwrap()), row);
    }
}

#[test]
fn errors_say_what_is_allowed() {
    for (text, message) in [
        ("", "invalid duration \"\": expected numbers with units, such as 300ms, 10s or 1h30m"),
        ("--5s", "invalid duration \"--5s\": expected numbers with units, such as 300ms, 10s or 1h30m"),
        ("15", "missing unit in duration \"15\"; allowed are ns, us, ms, s, m and h"),
        ("1d", "unknown unit \"d\" in duration \"1d\"; allowed are ns, us, ms, s, m and h"),
        (
            "99999999999999999999h",
            "duration \"99999999999999999999h\" is out of range; the largest is 2562047h47m16.854775807s",
        ),
    ] {
        assert_eq!(GoDuration::parse(text).map_err(|e| e.to_string()), Err(message.to_owned()), "{text:?}");
    }
    // Go wraps this one round to zero.
    let twice = "9223372036854775808ns9223372036854775808ns";
    assert_eq!(GoDuration::parse(twice), Err(GoDurationError::Range(twice.to_owned())));
}

#[test]
fn converts_to_and_from_the_standard_library() {
    assert_eq!(GoDuration::from_secs(15).to_std(), Some(Duration::from_secs(15)));
    assert_eq!(GoDuration(-1).to_std(), None);
    assert_eq!(GoDuration::from(Duration::from_millis(1500)).to_string(), "1.5s");
    assert_eq!(GoDuration::from(Duration::MAX), GoDuration(i64::MAX));
    assert_eq!(GoDuration::from_secs(i64::MAX), GoDuration(i64::MAX));
}

#[test]
fn json_carries_the_text() {
    assert_eq!(serde_json::to_string(&GoDuration::from_secs(90)).unwrap(), "\"1m30s\"");
    assert_eq!(serde_json::from_str::<GoDuration>("\"1m30s\"").unwrap(), GoDuration::from_secs(90));
    assert!(serde_json::from_str::<GoDuration>("90").is_err());
}
