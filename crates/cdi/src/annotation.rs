//! The older way of telling a runtime which devices a container gets: annotations of the container, set by a device plugin.
//!
//! In: a plugin's name, the identifier of what was allocated, qualified names. Out: key and value. Never: a key Kubernetes would refuse.

use crate::name::QualifiedName;

/// What every key begins with.
pub const PREFIX: &str = "cdi.k8s.io/";

/// The longest name after the slash.
pub const MAX_NAME: usize = 63;

/// The key for one allocation: `cdi.k8s.io/<plugin>_<id>`, with `_` for `/` in the identifier. `plugin` is by convention `<vendor>.<class>`.
///
/// # Errors
/// When the name is empty, longer than [`MAX_NAME`], or has characters Kubernetes does not allow.
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

/// The value: the names, joined by commas.
#[must_use]
pub fn value(devices: &[QualifiedName]) -> String {
    devices.iter().map(QualifiedName::to_string).collect::<Vec<_>>().join(",")
}

/// A key that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A part is empty.
    #[error("the {0} of a CDI annotation is empty")]
    Empty(&'static str),
    /// Too long.
    #[error("the name \"{0}\" of a CDI annotation is longer than {MAX_NAME} characters")]
    Long(String),
    /// A character that is not allowed.
    #[error(
        "the name \"{0}\" of a CDI annotation must begin and end with a letter or digit and have only letters, digits, _ - . inside"
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
