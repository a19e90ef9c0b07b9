use super::*;

fn digest(digit: char) -> String {
    format!("sha256:{}", String::from(digit).repeat(64))
}

fn own() -> Image {
    Image { name: "registry.example/tholepin:1".to_owned(), pull_policy: String::new() }
}

/// A020: which digests are trusted, and how many lines are warned about.
#[test]
fn lists_and_variables_name_the_trusted_images() {
    let [a, b, c, d] = ['a', 'b', 'c', 'd'].map(digest);
    let list = format!(
        r#"{{"current_channel": ["{a}", "{b}"], "prev_channel_last": "{c}", "eus_channel_last": "", "more": 1}}"#
    );
    let built_in: &[&str] = &[&a, &b, &c];
    let all: &[&str] = &[&a, &b, &c, &d];
    let many = format!(" {d} , ,{a},{}", "sha256:ABC");
    let upper = format!("sha256:{}", "A".repeat(64));
    type Row<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a [&'a str]>, usize);
    let table: [Row; 9] = [
        (None, None, Some(built_in), 0),
        (Some("true"), None, Some(built_in), 0),
        (Some("anything"), Some(""), Some(built_in), 0),
        (Some("False"), None, Some(built_in), 0),
        (None, Some(&d), Some(all), 0),
        (None, Some(&many), Some(all), 1),
        (None, Some(&upper), Some(built_in), 1),
        (Some("false"), None, None, 0),
        (Some("false"), Some(&many), None, 0),
    ];
    for (validation, digests, wanted, warned) in table {
        let (trusted, warnings) = trust(&list, validation, digests, &own()).unwrap();
        let found =
            trusted.as_ref().map(|trust| trust.digests.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), wanted, "{validation:?} {digests:?}");
        assert_eq!(warnings.len(), warned, "{warnings:?}");
        assert!(trusted.is_none_or(|trust| trust.images.contains(&own().name)));
    }
}

#[test]
fn the_built_in_list_is_valid_and_an_invalid_one_is_an_error() {
    let (trusted, warnings) = trust(EMBEDDED_DIGESTS, None, None, &Image::default()).unwrap();
    assert_eq!((trusted, warnings), (Some(Trust::default()), vec![]));
    let error = format!("{:#}", trust("[", None, None, &own()).unwrap_err());
    assert!(error.starts_with("trusted digests: "), "{error}");
    assert!(trust(r#"{"current_channel": null}"#, None, None, &own()).is_ok());
}

/// U004
#[test]
fn images_are_trusted_by_digest() {
    let trust = Trust { digests: [digest('a')].into(), images: [own().name].into() };
    let (known, unknown) = (digest('a'), digest('b'));
    let by_tag = "must be referenced by digest, not by tag";
    let malformed = "has malformed digest";
    let table = [
        (format!("registry.example/scheduler@{known}"), None),
        (format!("registry.example/scheduler:v1@{known}"), None),
        (format!("@{known}"), None),
        ("registry.example/tholepin:1".to_owned(), None),
        ("registry.example/tholepin:2".to_owned(), Some(by_tag)),
        ("registry.example/scheduler".to_owned(), Some(by_tag)),
        ("registry.example/scheduler@".to_owned(), Some(malformed)),
        ("registry.example/scheduler@sha256:abc".to_owned(), Some(malformed)),
        (format!("registry.example/scheduler@{}", known.to_uppercase()), Some(malformed)),
        (format!("registry.example/scheduler@{}", known.replace("sha256", "sha512")), Some(malformed)),
        (format!("a@b@{known}"), Some(malformed)),
        (format!("registry.example/scheduler@{unknown}"), Some("is not in the trusted list")),
    ];
    for (image, wanted) in table {
        let found = check(&image, &trust);
        match wanted {
            None => assert_eq!(found, Ok(()), "{image}"),
            Some(wanted) => assert!(found.as_ref().is_err_and(|e| e.contains(wanted)), "{image}: {found:?}"),
        }
    }
    let untrusted = check(&format!("x@{unknown}"), &trust).unwrap_err();
    assert!(untrusted.contains("SCHEDULER_IMAGE_DIGESTS"), "{untrusted}");
}
