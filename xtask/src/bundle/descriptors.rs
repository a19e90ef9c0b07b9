//! What a console shows of our kinds' fields.
//!
//! In: a definition. Out: a descriptor for each field, of lists of groups for those of the first. Never: a
//! field or a text that the definition's schema does not have.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde::Serialize;

/// How deep fields of fields are shown: `nodeGroups[0].config.infoRefreshMode`.
const DEPTH: usize = 3;

/// A kind, in one version, as the CSV names it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owned {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) display_name: String,
    pub(crate) description: String,
    resources: Vec<Resource>,
    pub(crate) spec_descriptors: Vec<Descriptor>,
    pub(crate) status_descriptors: Vec<Descriptor>,
}

impl Owned {
    /// The API group.
    pub(crate) fn group(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, group)| group)
    }
}

/// Objects that are made for one of the kind.
#[derive(Clone, Debug, Serialize)]
struct Resource {
    kind: &'static str,
    name: &'static str,
    version: &'static str,
}

/// A field.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) path: String,
    display_name: String,
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    x_descriptors: Vec<String>,
}

/// A version of a definition.
pub(crate) fn owned(
    definition: &CustomResourceDefinition,
    version: &CustomResourceDefinitionVersion,
) -> Owned {
    let kind = &definition.spec.names.kind;
    let schema =
        version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.clone()).unwrap_or_default();
    let fields = |name: &str| {
        let part = schema.properties.as_ref().and_then(|properties| properties.get(name));
        let mut out = Vec::new();
        part.into_iter().for_each(|part| descend(part, "", 1, name == "spec", &mut out));
        out
    };
    Owned {
        kind: kind.clone(),
        name: definition.metadata.name.clone().unwrap_or_default(),
        version: version.name.clone(),
        display_name: title(kind),
        description: schema.description.clone().unwrap_or_default(),
        resources: resources(kind),
        spec_descriptors: fields("spec"),
        status_descriptors: fields("status"),
    }
}

fn resources(kind: &str) -> Vec<Resource> {
    let made: &[[&'static str; 2]] = match kind {
        api::numaresources::operator::KIND => &[
            ["DaemonSet", "v1"],
            ["ConfigMap", "v1"],
            ["Service", "v1"],
            ["NetworkPolicy", "v1"],
            ["ServiceAccount", "v1"],
        ],
        api::hardware::KIND => {
            &[[api::kmm::MODULE, api::kmm::VERSION], ["ConfigMap", "v1"], ["ServiceAccount", "v1"]]
        }
        _ => &[["Deployment", "v1"], ["ConfigMap", "v1"], ["NetworkPolicy", "v1"], ["ServiceAccount", "v1"]],
    };
    // Without names: a console shows those that the object owns. Objects of a DeviceConfig have no owner.
    made.iter().map(|[kind, version]| Resource { kind, name: "", version }).collect()
}

fn descend(schema: &JSONSchemaProps, above: &str, depth: usize, asks: bool, out: &mut Vec<Descriptor>) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        out.push(Descriptor {
            display_name: title(name),
            description: field.description.clone().unwrap_or_default(),
            x_descriptors: widgets(name, field, asks),
            path: path.clone(),
        });
        if depth < DEPTH && !is_known(name) {
            descend(field, &path, depth + 1, asks, out);
            if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
                descend(item, &format!("{path}[0]"), depth + 1, asks, out);
            }
        }
    }
}

/// Fields of Kubernetes' own types: consoles know them.
fn is_known(name: &str) -> bool {
    ["conditions", "tolerations", "machineConfigPoolSelector", "nodeSelector", "annotations"].contains(&name)
}

/// How a field is edited (what is asked) or shown (what is answered).
fn widgets(name: &str, field: &JSONSchemaProps, asks: bool) -> Vec<String> {
    const URN: &str = "urn:alm:descriptor";
    if name == "conditions" {
        return vec![format!("{URN}:io.kubernetes.conditions")];
    }
    if !asks {
        return Vec::new();
    }
    let words: Vec<String> =
        field.enum_.iter().flatten().filter_map(|word| word.0.as_str().map(str::to_owned)).collect();
    if !words.is_empty() {
        let words = words.iter().filter(|word| !word.is_empty());
        return words.map(|word| format!("{URN}:com.tectonic.ui:select:{word}")).collect();
    }
    let widget = match (name, field.type_.as_deref()) {
        ("replicas", _) => "podCount",
        (_, Some("boolean")) => "booleanSwitch",
        (_, Some("integer")) => "number",
        (_, Some("string")) => "text",
        _ => return Vec::new(),
    };
    vec![format!("{URN}:com.tectonic.ui:{widget}")]
}

/// `machineConfigPoolSelector` as `Machine Config Pool Selector`; a run of capitals is one word.
fn title(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut title = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(at + 1);
        let begins = letter.is_ascii_uppercase()
            && (before.is_some_and(char::is_ascii_lowercase)
                || before.is_some() && after.is_some_and(char::is_ascii_lowercase));
        if begins {
            title.push(' ');
        }
        title.push(if at == 0 { letter.to_ascii_uppercase() } else { *letter });
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_titles() {
        for (name, wanted) in [
            ("imageSpec", "Image Spec"),
            ("machineConfigPoolSelector", "Machine Config Pool Selector"),
            ("NUMAResourcesOperator", "NUMA Resources Operator"),
            ("replicas", "Replicas"),
            ("", ""),
        ] {
            assert_eq!(title(name), wanted);
        }
    }
}
