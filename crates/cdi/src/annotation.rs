//! Annotations of a container, with which older device plugins name its devices to the runtime.
//!
//! In: a plugin's name, the identifier of an allocation, qualified names. Out: key and value. Never: a key that
//! Kubernetes would refuse.

use crate::name::QualifiedName;

/// The prefix of every key.
pub const PREFIX: &str = "cdi.k8s.io/";

/// The longest name after the slash, in characters.
pub const MAX_NAME: usize = 63;

/// The key for one allocation: `cdi.k8s.io/<plugin>_<id>`, with `_` for `/` in the identifier. By convention `plugin`
/// is `<vendor>.<class>`.
///
/// # Errors
/// When a part is empty, the name is longer than [`MAX_NAME`], or it has characters that Kubernetes does not allow.
pub fn key(plugin: &str, id: &str) -> Result<String, Error> {
    if plugin.is_empty() {
        return Err(Error::Empty("plugin"));
    }
    if id.is_empty() {
        return Err(Error::Empty("identifier"));
    }
    let name = format!("{plugin}_{}", id.replace('/', "_"));
    if name.len() > MAX_NAME {
        return Err(Error::Long(name));
    }
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inside) {
        Ok(format!("{PREFIX}{name}"))
    } else {
        Err(Error::Characters(name))
    }
}

/// The annotation's value: the names, joined by commas.
#[must_use]
pub fn value(devices: &[QualifiedName]) -> String {
    devices.iter().map(QualifiedName::to_string).collect::<Vec<_>>().join(",")
}

/// Why a key is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A part of the key is empty.
    #[error("the {0} of a CDI annotation is empty")]
    Empty(&'static str),
    /// The name is too long.
    #[error("the name \"{0}\" of a CDI annotation is longer than {MAX_NAME} characters")]
    Long(String),
    /// The name has a character that is not allowed.
    #[error(
        "the name \"{0}\" of a CDI annotation must begin and end with a letter or digit and have only letters, digits, \
         _ - . inside"
    )]
    Characters(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long = "a".repeat(58);
        let longest = format!("{PREFIX}{}_{}", "v.gp", &long);
        for (plugin, id, key_) in [
            ("vendor.class", "0", Some("cdi.k8s.io/vendor.class_0")),
            ("vendor.class", "dev/x", Some("cdi.k8s.io/vendor.class_dev_x")),
            ("v.gp", &*long, Some(&*longest)),
            ("v.gpu", &*long, None),
            ("", "0", None),
            ("v.c", "", None),
            ("-v.c", "0", None),
            ("v.c", "0/", None),
            ("v/c", "0", None),
            ("v.c", "0000:3b:00.0", None),
            ("v.c", "ä", None),
        ] {
            assert_eq!(key(plugin, id).ok().as_deref(), key_, "{plugin} {id}");
        }
    }

    #[test]
    fn values() {
        let name = |text: &str| text.parse::<QualifiedName>().unwrap();
        assert_eq!(value(&[]), "");
        assert_eq!(value(&[name("v/c=a")]), "v/c=a");
        assert_eq!(value(&[name("v/c=a"), name("v/c=b")]), "v/c=a,v/c=b");
    }
}
