//! Names: `<vendor>/<class>=<device>`.
//!
//! In: text. Out: a name that runtimes accept, or why the text is not one. Never: a name that is changed silently;
//! [`device_name`] documents its changes.
//!
//! The rules are those of the library that runtimes are built with. The specification's text is stricter in places;
//! [`strict_kind`] and [`strict_device`] report where.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh64::xxh64;

/// The longest vendor, in characters.
pub const MAX_VENDOR: usize = 253;

/// The longest class, in characters.
pub const MAX_CLASS: usize = 63;

/// The kind of a device: `<vendor>/<class>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    vendor: String,
    class: String,
}

/// The qualified name of a device, which a container asks for: `<vendor>/<class>=<device>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    kind: Kind,
    device: String,
}

impl Kind {
    /// A kind from its parts.
    ///
    /// # Errors
    /// When a part is malformed.
    pub fn new(vendor: &str, class: &str) -> Result<Self, Error> {
        check_vendor_or_class("vendor", vendor)?;
        check_vendor_or_class("class", class)?;
        Ok(Self { vendor: vendor.to_owned(), class: class.to_owned() })
    }

    /// The vendor, the part before the slash.
    #[must_use]
    pub fn vendor(&self) -> &str {
        &self.vendor
    }

    /// The class, the part after the slash.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The qualified name of a device of this kind.
    ///
    /// # Errors
    /// When the device's name is malformed.
    pub fn device(&self, device: &str) -> Result<QualifiedName, Error> {
        check_device(device)?;
        Ok(QualifiedName { kind: self.clone(), device: device.to_owned() })
    }
}

impl QualifiedName {
    /// The device's kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The device's own name, unique within the kind.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (vendor, class) = text.split_once('/').ok_or_else(|| Error::NoKind(text.to_owned()))?;
        Self::new(vendor, class)
    }
}

impl FromStr for QualifiedName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, device) = text.split_once('=').ok_or_else(|| Error::Unqualified(text.to_owned()))?;
        kind.parse::<Kind>()?.device(device)
    }
}

/// A device name for any identifier. The identifier itself where it is a legal name without a colon; otherwise dashes
/// replace illegal characters and a hash is appended, so that two identifiers have two names.
#[must_use]
pub fn device_name(id: &str) -> String {
    if check_device(id).is_ok() && strict_device(id).is_none() {
        return id.to_owned();
    }
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
    let readable: String = id.chars().map(legal).take(64).collect();
    let readable = readable.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let hash = format!("{:08x}", xxh64(id.as_bytes(), 0) >> 32);
    if readable.is_empty() { hash } else { format!("{readable}-{hash}") }
}

/// Where a kind that runtimes accept violates the specification's text: vendors are DNS subdomains, classes have at
/// most 63 characters. None when it does not.
#[must_use]
pub fn strict_kind(kind: &Kind) -> Option<String> {
    let label = |label: &str| {
        let inside = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        !label.is_empty() && label.len() <= 63 && inside && !label.starts_with('-') && !label.ends_with('-')
    };
    if kind.vendor.len() > MAX_VENDOR || !kind.vendor.split('.').all(label) {
        return Some(format!(
            "vendor \"{}\" is not a DNS subdomain of at most {MAX_VENDOR} characters (lower case letters, digits, - \
             and .), which the specification requires",
            kind.vendor
        ));
    }
    (kind.class.len() > MAX_CLASS).then(|| {
        format!(
            "class \"{}\" is longer than {MAX_CLASS} characters, which is the specification's limit",
            kind.class
        )
    })
}

/// Where a device name that runtimes accept violates the specification's text, which allows no colons. None when it
/// does not.
#[must_use]
pub fn strict_device(name: &str) -> Option<String> {
    name.contains(':').then(|| {
        format!("\"{name}\" has a colon, which the specification does not allow inside a name (letters, digits, _ - .)")
    })
}

/// Checks a device's own name by the rules of runtimes.
///
/// # Errors
/// When runtimes refuse the name.
pub fn check_device(name: &str) -> Result<(), Error> {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inside) {
        return Ok(());
    }
    Err(Error::Device(name.to_owned()))
}

fn check_vendor_or_class(what: &'static str, name: &str) -> Result<(), Error> {
    let starts = |c: char| c.is_ascii_alphabetic();
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.starts_with(starts) && name.ends_with(ends) && name.chars().all(inside) {
        return Ok(());
    }
    Err(Error::Part { what, name: name.to_owned() })
}

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A kind without a slash.
    #[error("\"{0}\" is not a kind: it must be <vendor>/<class>")]
    NoKind(String),
    /// A qualified name without an equals sign.
    #[error("\"{0}\" is not a device: it must be <vendor>/<class>=<device>")]
    Unqualified(String),
    /// A malformed vendor or class.
    #[error(
        "{what} \"{name}\" must begin with a letter, end with a letter or digit and have only letters, digits, _ - . \
         inside"
    )]
    Part {
        /// `vendor` or `class`.
        what: &'static str,
        /// The malformed text.
        name: String,
    },
    /// A malformed device name.
    #[error(
        "device name \"{0}\" must begin and end with a letter or digit and have only letters, digits, _ - . : inside"
    )]
    Device(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn qualified_names() {
        let long = format!("v/{}=d", "c".repeat(64));
        for (text, good, strict) in [
            ("vendor.example/class=device", true, true),
            ("v/c=d", true, true),
            ("v/c.d_e-f=0", true, true),
            ("vendor.example/class=0000:3b:00.0", true, false),
            ("Vendor_A/class=device", true, false),
            (&*long, true, false),
            ("", false, false),
            ("device", false, false),
            ("v/c", false, false),
            ("v/c=", false, false),
            ("v=d", false, false),
            ("/c=d", false, false),
            ("v/=d", false, false),
            ("0v/c=d", false, false),
            ("v/0c=d", false, false),
            ("v-/c=d", false, false),
            ("v/c.=d", false, false),
            ("v/c/e=d", false, false),
            ("v/c=-d", false, false),
            ("v/c=d_", false, false),
            ("v/c=d=e", false, false),
            ("v/c=d e", false, false),
            ("v/c=ä", false, false),
            ("vä/c=d", false, false),
        ] {
            let name: Result<QualifiedName, _> = text.parse();
            assert_eq!(name.is_ok(), good, "{text}: {name:?}");
            if let Ok(name) = name {
                assert_eq!(name.to_string(), text);
                let departs = strict_kind(name.kind()).or(strict_device(name.device()));
                assert_eq!(departs.is_none(), strict, "{text}: {departs:?}");
            }
        }
    }

    #[test]
    fn identifiers_become_names() {
        for (id, name) in [("gpu-0", "gpu-0"), ("0", "0"), ("a.b_c", "a.b_c")] {
            assert_eq!(device_name(id), name);
        }
        for (id, begin) in [
            ("0000:3b:00.0", "0000-3b-00.0-"),
            ("gpu::1", "gpu--1-"),
            ("/dev/x", "dev-x-"),
            ("", ""),
            ("ä", ""),
        ] {
            let name = device_name(id);
            assert!(name.starts_with(begin) && name.len() == begin.len() + 8, "{id}: {name}");
        }
    }

    proptest! {
        #[test]
        fn any_identifier_becomes_a_name(id in ".{0,100}", other in "[a:/]{0,3}", another in "[a:/]{0,3}") {
            let name = device_name(&id);
            prop_assert!(check_device(&name).is_ok() && strict_device(&name).is_none(), "{}", name);
            prop_assert_eq!(device_name(&other) == device_name(&another), other == another);
        }

        #[test]
        fn garbage_is_refused_or_round_trips(text in "[a-z0-9/=:._ä-]{0,20}") {
            if let Ok(name) = text.parse::<QualifiedName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
