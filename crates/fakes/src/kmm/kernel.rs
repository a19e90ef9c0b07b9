//! Which image a kernel gets.
//!
//! In: a Module's kernel mappings, a node's kernel. Out: the mapping that counts, and its image with the
//! variables filled in. Never: an error for a node whose kernel no mapping covers: that node is not served.

use regex_lite::Regex;
use serde_json::Value;

/// A kernel's version as mappings see it: without one `+` at its end.
pub(super) fn version(kernel: &str) -> &str {
    kernel.strip_suffix('+').unwrap_or(kernel)
}

/// The first mapping that takes the kernel.
pub(super) fn mapping<'m>(container: &'m Value, kernel: &str) -> Option<&'m Value> {
    let kernel = version(kernel);
    container["kernelMappings"].as_array()?.iter().find(|mapping| {
        match (mapping["literal"].as_str(), mapping["regexp"].as_str()) {
            (Some(literal), _) if !literal.is_empty() => literal == kernel,
            (_, Some(pattern)) => Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(kernel)),
            _ => false,
        }
    })
}

/// The image for a kernel. `None`: nothing maps it, or its version has fewer than three parts.
pub(super) fn image(module: &Value, kernel: &str) -> Option<String> {
    let container = &module["spec"]["moduleLoader"]["container"];
    let mapping = mapping(container, kernel)?;
    let named = mapping["containerImage"].as_str().filter(|image| !image.is_empty());
    let template = named.or_else(|| container["containerImage"].as_str())?;
    let metadata = &module["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    fill(template, version(kernel), &text(&metadata["namespace"]), &text(&metadata["name"]))
}

/// Fills in `$NAME`, `${NAME}` and `${NAME:-otherwise}`; what is not known is empty.
fn fill(template: &str, kernel: &str, namespace: &str, name: &str) -> Option<String> {
    let parts: Vec<&str> = kernel.split(['.', ',', '-']).collect();
    let &[x, y, z, ..] = parts.as_slice() else { return None };
    let tag: String = kernel
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .collect();
    let value = |variable: &str| match variable {
        "KERNEL_FULL_VERSION" | "KERNEL_VERSION" => tag.clone(),
        "KERNEL_XYZ" => format!("{x}.{y}.{z}"),
        "KERNEL_X" => x.to_owned(),
        "KERNEL_Y" => y.to_owned(),
        "KERNEL_Z" => z.to_owned(),
        "MOD_NAME" => name.to_owned(),
        "MOD_NAMESPACE" => namespace.to_owned(),
        _ => String::new(),
    };
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        rest = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((variable, after)) => {
                let (variable, otherwise) = variable.split_once(":-").unwrap_or((variable, ""));
                let value = value(variable);
                filled.push_str(if value.is_empty() { otherwise } else { &value });
                after
            }
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                filled.push_str(&value(&after[..end]));
                &after[end..]
            }
        };
    }
    filled.push_str(rest);
    Some(filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_filled_in() {
        let fill = |template: &str| fill(template, "5.14.0-427.13.1.el9_4.x86_64~rt", "hw", "acc").unwrap();
        for (template, wanted) in [
            ("r/acc:1-${KERNEL_FULL_VERSION}", "r/acc:1-5.14.0-427.13.1.el9_4.x86_64_rt"),
            ("r/$MOD_NAMESPACE/$MOD_NAME:$KERNEL_XYZ", "r/hw/acc:5.14.0"),
            ("r:$KERNEL_X-$KERNEL_Y-${KERNEL_Z}", "r:5-14-0"),
            ("r:${WHAT:-other}${KERNEL_X:-9}$WHAT", "r:other5"),
            ("r:plain", "r:plain"),
        ] {
            assert_eq!(fill(template), wanted);
        }
        assert_eq!(super::fill("r:$KERNEL_X", "5.14", "hw", "acc"), None);
    }

    #[test]
    fn the_first_mapping_counts() {
        let module = json!({
            "metadata": { "namespace": "hw", "name": "acc" },
            "spec": { "moduleLoader": { "container": {
                "containerImage": "r:fallback",
                "kernelMappings": [
                    { "literal": "5.14.0-1.el9", "containerImage": "r:literal" },
                    { "regexp": r"\.el9", "containerImage": "r:nine" },
                    { "regexp": "^6[.]", "containerImage": "" },
                    { "regexp": "(", "containerImage": "r:never" },
                ],
            } } },
        });
        for (kernel, wanted) in [
            ("5.14.0-1.el9+", Some("r:literal")),
            ("5.14.0-2.el9.x86_64", Some("r:nine")),
            ("6.1.0-x", Some("r:fallback")),
            ("4.18.0-553.el8_10.x86_64", None),
        ] {
            assert_eq!(image(&module, kernel).as_deref(), wanted, "{kernel}");
        }
    }
}
