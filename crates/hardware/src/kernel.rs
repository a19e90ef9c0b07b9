//! The image for a node's kernel.
//!
//! In: kernel mappings, the version of a kernel, a Module's name. Out: the image that KMM will choose. Never: an image
//! for a kernel that no mapping matches, or a guess where an expression cannot be read.

use std::collections::BTreeMap;

use api::hardware::{KernelMapping, RegistryTls, first_match};

/// The result of kernel mappings for a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSupport {
    /// A mapping gives an image.
    Supported(Source),
    /// No mapping matches: the node is left alone.
    Unsupported,
    /// Undecided, because of this error in a mapping or in the version.
    Invalid(String),
}

/// The values of a kernel mapping for a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The image.
    pub image: String,
    /// Modules to unload before, if the mapping names any.
    pub in_tree_modules_to_remove: Vec<String>,
    /// TLS settings of the registry, if the mapping has any.
    pub registry_tls: Option<RegistryTls>,
}

/// The names of a Module in templates of images.
#[derive(Clone, Copy, Debug)]
pub struct TemplateNames<'a> {
    /// `MOD_NAME`.
    pub name: &'a str,
    /// `MOD_NAMESPACE`.
    pub namespace: &'a str,
}

/// The result of the mappings for a kernel, as KMM's `pkg/module` kernel mapper has it.
#[must_use]
pub fn kernel_support(mappings: &[KernelMapping], kernel: &str, names: TemplateNames<'_>) -> KernelSupport {
    let matched = match first_match(mappings, kernel) {
        Ok(matched) => matched.and_then(|index| mappings.get(index)),
        Err(error) => return KernelSupport::Invalid(error.to_string()),
    };
    let Some(mapping) = matched else { return KernelSupport::Unsupported };
    let template = mapping.image.as_deref().unwrap_or_default();
    match variables(kernel, names) {
        Some(variables) => KernelSupport::Supported(Source {
            image: fill(template, &variables),
            in_tree_modules_to_remove: mapping.in_tree_modules_to_remove.clone(),
            registry_tls: mapping.registry_tls,
        }),
        None => KernelSupport::Invalid(format!(
            "the kernel's version {kernel:?} has fewer than three parts, which KMM refuses"
        )),
    }
}

/// Variables of a template, by name.
type Variables = BTreeMap<&'static str, String>;

/// The variables for a kernel; `None` if the version has fewer than three parts.
fn variables(kernel: &str, names: TemplateNames<'_>) -> Option<Variables> {
    let kernel = kernel.strip_suffix('+').unwrap_or(kernel);
    let legal = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let full: String = kernel.chars().map(legal).collect();
    let mut parts = kernel.split(['.', ',', '-']);
    let [x, y, z] = [parts.next()?, parts.next()?, parts.next()?];
    Some(Variables::from([
        ("KERNEL_FULL_VERSION", full.clone()),
        ("KERNEL_VERSION", full),
        ("KERNEL_XYZ", format!("{x}.{y}.{z}")),
        ("KERNEL_X", x.to_owned()),
        ("KERNEL_Y", y.to_owned()),
        ("KERNEL_Z", z.to_owned()),
        ("MOD_NAME", names.name.to_owned()),
        ("MOD_NAMESPACE", names.namespace.to_owned()),
    ]))
}

/// The value of a variable; unknown ones are empty.
fn value<'a>(variables: &'a Variables, name: &str) -> &'a str {
    variables.get(name).map_or("", String::as_str)
}

/// Fills in the variables of a template: `$NAME`, `${NAME}`, and the forms of shells for empty variables.
fn fill(template: &str, variables: &Variables) -> String {
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
            image += value(variables, name);
        }
        rest = further;
    }
    image + rest
}

/// The value of `${...}`: a name, with an optional replacement for an empty value (`-`, `:-`, `=`, `:=`) or for any
/// other (`+`, `:+`).
fn braced(inside: &str, variables: &Variables) -> String {
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inside.len());
    let (name, form) = inside.split_at(end);
    let value = value(variables, name);
    let form = form.strip_prefix(':').unwrap_or(form);
    match (form.chars().next(), value.is_empty()) {
        (Some('-' | '='), true) | (Some('+'), false) => form.chars().skip(1).collect(),
        (Some('+'), true) => String::new(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: TemplateNames<'static> = TemplateNames { name: "acc-module", namespace: "hw" };
    const EL9: &str = "5.14.0-427.13.1.el9_4.x86_64";

    fn supported(image: &str) -> KernelSupport {
        KernelSupport::Supported(Source { image: image.to_owned(), ..Source::default() })
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
    fn the_first_match_decides() {
        let all = [
            mapping(Some("6.1.0-literal"), None, "r/a:literal"),
            mapping(None, Some(r"\.el9"), "r/a:el9"),
            mapping(None, Some("^6\\."), "r/a:six"),
        ];
        let table = [
            ("6.1.0-literal", supported("r/a:literal")),
            ("6.1.0-literal+", supported("r/a:literal")),
            (EL9, supported("r/a:el9")),
            ("6.12.0-1.el9_6", supported("r/a:el9")),
            ("6.12.0-55.9.1.el10_0.x86_64", supported("r/a:six")),
            ("4.18.0-553.el8_10.x86_64", KernelSupport::Unsupported),
            ("", KernelSupport::Unsupported),
        ];
        for (kernel, wanted) in table {
            assert_eq!(kernel_support(&all, kernel, NAMES), wanted, "{kernel}");
        }
    }

    #[test]
    fn errors_name_the_field_or_the_version() {
        let odd = [mapping(None, Some("(["), "r/a:x")];
        let KernelSupport::Invalid(why) = kernel_support(&odd, EL9, NAMES) else { panic!("it can be read") };
        assert!(why.contains("spec.kernelMappings[0].regexp"), "{why}");
        let any = [mapping(None, Some("^.+$"), "r/a:x")];
        let KernelSupport::Invalid(why) = kernel_support(&any, "6.1", NAMES) else { panic!("it has parts") };
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
            ("r/a:1${MISSING}", "r/a:1"),
            ("r/a:${MISSING:-x}${MISSING-y}${MISSING=z}", "r/a:xyz"),
            ("r/a:${KERNEL_X:-x}${KERNEL_X:+y}${MISSING+z}", "r/a:5y"),
            ("r/a:1$", "r/a:1$"),
            ("r/a:${KERNEL_X", "r/a:${KERNEL_X"),
        ];
        for (template, wanted) in table {
            let all = [mapping(None, Some("."), template)];
            assert_eq!(kernel_support(&all, EL9, NAMES), supported(wanted), "{template}");
        }
        let odd = kernel_support(&[mapping(None, Some("."), "a:$KERNEL_VERSION")], "6.1.0~rc1@x", NAMES);
        assert_eq!(odd, supported("a:6.1.0_rc1_x"));
    }

    proptest! {
        #[test]
        fn nothing_panics(template in ".{0,40}", kernel in ".{0,40}", regexp in ".{0,20}") {
            let _ = kernel_support(&[mapping(None, Some(&regexp), &template)], &kernel, NAMES);
            let _ = kernel_support(&[mapping(None, Some(""), &template)], &kernel, NAMES);
        }
    }
}
