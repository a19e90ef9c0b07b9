//! Which image a node's kernel needs.
//!
//! In: kernel mappings, the version of a kernel, a Module's name. Out: the image, as KMM will work it out. Never: an
//! image for a kernel that no mapping matches, or a guess where an expression cannot be read.

use api::hardware::{KernelMapping, RegistryTls, first_match};

/// What the mappings say of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// There is an image for it.
    By(Source),
    /// No mapping matches: the node is left alone.
    Unsupported,
    /// Undecided: this is wrong with a mapping or with the version.
    Unclear(String),
}

/// What a kernel mapping gives to a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The image.
    pub image: String,
    /// What is unloaded before, if the mapping says it itself.
    pub in_tree_modules_to_remove: Vec<String>,
    /// How to speak to the image's registry, if the mapping says it itself.
    pub registry_tls: Option<RegistryTls>,
}

/// A Module as templates of images name it.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// `MOD_NAME`.
    pub name: &'a str,
    /// `MOD_NAMESPACE`.
    pub namespace: &'a str,
}

/// What the mappings say of a kernel. KMM's `pkg/module` kernel mapper does the same.
#[must_use]
pub fn served(mappings: &[KernelMapping], kernel: &str, names: Names<'_>) -> Served {
    let matched = match first_match(mappings, kernel) {
        Ok(matched) => matched.and_then(|index| mappings.get(index)),
        Err(error) => return Served::Unclear(error.to_string()),
    };
    let Some(mapping) = matched else { return Served::Unsupported };
    let template = mapping.image.as_deref().unwrap_or_default();
    match Variables::of(kernel, names) {
        Some(variables) => Served::By(Source {
            image: filled(template, &variables),
            in_tree_modules_to_remove: mapping.in_tree_modules_to_remove.clone(),
            registry_tls: mapping.registry_tls,
        }),
        None => Served::Unclear(format!(
            "the kernel's version {kernel:?} has fewer than three parts, which KMM refuses"
        )),
    }
}

/// The variables of a template.
struct Variables<'a> {
    full: String,
    parts: [&'a str; 3],
    names: Names<'a>,
}

impl<'a> Variables<'a> {
    /// None if the version has fewer than three parts.
    fn of(kernel: &'a str, names: Names<'a>) -> Option<Self> {
        let kernel = kernel.strip_suffix('+').unwrap_or(kernel);
        let legal = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let mut parts = kernel.split(['.', ',', '-']);
        let parts = [parts.next()?, parts.next()?, parts.next()?];
        Some(Self { full: kernel.chars().map(legal).collect(), parts, names })
    }

    /// The value of a variable; unknown ones are empty.
    fn value(&self, name: &str) -> String {
        let [x, y, z] = self.parts;
        match name {
            "KERNEL_FULL_VERSION" | "KERNEL_VERSION" => self.full.clone(),
            "KERNEL_XYZ" => format!("{x}.{y}.{z}"),
            "KERNEL_X" => x.to_owned(),
            "KERNEL_Y" => y.to_owned(),
            "KERNEL_Z" => z.to_owned(),
            "MOD_NAME" => self.names.name.to_owned(),
            "MOD_NAMESPACE" => self.names.namespace.to_owned(),
            _ => String::new(),
        }
    }
}

/// A template with its variables filled in: `$NAME`, `${NAME}`, and the forms of shells for what is empty.
fn filled(template: &str, variables: &Variables<'_>) -> String {
    let (mut image, mut rest) = (String::with_capacity(template.len()), template);
    while let Some((before, after)) = rest.split_once('$') {
        image += before;
        if let Some((inside, further)) = after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            image += &braced(inside, variables);
            rest = further;
            continue;
        }
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, further) = after.split_at(end);
        if name.is_empty() {
            image.push('$');
        } else {
            image += &variables.value(name);
        }
        rest = further;
    }
    image + rest
}

/// What stands in `${...}`: a name, and perhaps what to say where it is empty (`-`, `:-`, `=`, `:=`) or is not (`+`,
/// `:+`).
fn braced(inside: &str, variables: &Variables<'_>) -> String {
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inside.len());
    let (name, form) = inside.split_at(end);
    let value = variables.value(name);
    let form = form.strip_prefix(':').unwrap_or(form);
    match (form.chars().next(), value.is_empty()) {
        (Some('-' | '='), true) | (Some('+'), false) => form.chars().skip(1).collect(),
        (Some('+'), true) => String::new(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: Names<'static> = Names { name: "acc-module", namespace: "hw" };
    const EL9: &str = "5.14.0-427.13.1.el9_4.x86_64";

    fn by(image: &str) -> Served {
        Served::By(Source { image: image.to_owned(), ..Source::default() })
    }

    fn mapping(literal: Option<&str>, regexp: Option<&str>, image: &str) -> KernelMapping {
        KernelMapping {
            literal: literal.map(str::to_owned),
            regexp: regexp.map(str::to_owned),
            image: Some(image.to_owned()),
            ..KernelMapping::default()
        }
    }

    #[test]
    fn the_first_that_matches_counts() {
        let all = [
            mapping(Some("6.1.0-literal"), None, "r/a:literal"),
            mapping(None, Some(r"\.el9"), "r/a:el9"),
            mapping(None, Some("^6\\."), "r/a:six"),
        ];
        let table = [
            ("6.1.0-literal", by("r/a:literal")),
            ("6.1.0-literal+", by("r/a:literal")),
            (EL9, by("r/a:el9")),
            ("6.12.0-1.el9_6", by("r/a:el9")),
            ("6.12.0-55.9.1.el10_0.x86_64", by("r/a:six")),
            ("4.18.0-553.el8_10.x86_64", Served::Unsupported),
            ("", Served::Unsupported),
        ];
        for (kernel, wanted) in table {
            assert_eq!(served(&all, kernel, NAMES), wanted, "{kernel}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let odd = [mapping(None, Some("(["), "r/a:x")];
        let Served::Unclear(why) = served(&odd, EL9, NAMES) else { panic!("it can be read") };
        assert!(why.contains("spec.kernelMappings[0].regexp"), "{why}");
        let any = [mapping(None, Some("^.+$"), "r/a:x")];
        let Served::Unclear(why) = served(&any, "6.1", NAMES) else { panic!("it has parts") };
        assert!(why.contains("\"6.1\""), "{why}");
    }

    #[test]
    fn templates_are_filled() {
        let table = [
            ("r/a:1-${KERNEL_FULL_VERSION}", "r/a:1-5.14.0-427.13.1.el9_4.x86_64"),
            ("r/a:$KERNEL_VERSION", "r/a:5.14.0-427.13.1.el9_4.x86_64"),
            ("r/a:${KERNEL_XYZ}", "r/a:5.14.0"),
            ("r/a:${KERNEL_X}-$KERNEL_Y-${KERNEL_Z}", "r/a:5-14-0"),
            ("r/$MOD_NAMESPACE/${MOD_NAME}:1", "r/hw/acc-module:1"),
            ("r/a:1${NOBODY}", "r/a:1"),
            ("r/a:${NOBODY:-x}${NOBODY-y}${NOBODY=z}", "r/a:xyz"),
            ("r/a:${KERNEL_X:-x}${KERNEL_X:+y}${NOBODY+z}", "r/a:5y"),
            ("r/a:1$", "r/a:1$"),
            ("r/a:${KERNEL_X", "r/a:${KERNEL_X"),
        ];
        for (template, wanted) in table {
            let all = [mapping(None, Some("."), template)];
            assert_eq!(served(&all, EL9, NAMES), by(wanted), "{template}");
        }
        let odd = served(&[mapping(None, Some("."), "a:$KERNEL_VERSION")], "6.1.0~rc1@x", NAMES);
        assert_eq!(odd, by("a:6.1.0_rc1_x"));
    }

    proptest! {
        #[test]
        fn nothing_panics(template in ".{0,40}", kernel in ".{0,40}", regexp in ".{0,20}") {
            let _ = served(&[mapping(None, Some(&regexp), &template)], &kernel, NAMES);
            let _ = served(&[mapping(None, Some(""), &template)], &kernel, NAMES);
        }
    }
}
