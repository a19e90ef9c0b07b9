//! Conversion of DeviceConfigs of the authoring guide's sample operator (`example.com/v1alpha1`).
//!
//! In: an object as JSON. Out: an equivalent DeviceConfig of this API, and notes on differences. Never: a guess where
//! the old operator was ambiguous, or an object that the API server would refuse.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{DeviceConfig, KIND, PullPolicy, Spec, check};

/// The sample operator's group and version.
pub const OLD_API_VERSION: &str = "example.com/v1alpha1";
/// The sample operator's default node selector.
pub const OLD_SELECTOR: (&str, &str) = ("feature.node.kubernetes.io/pci-1da3.present", "true");

/// kubectl's own annotation, which is dropped.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind in words, as far as it is stated.
fn named(kind: &str, api_version: &str) -> String {
    match (kind, api_version) {
        ("", "") => "what has neither kind nor apiVersion".to_owned(),
        ("", version) => format!("an object of {version} without kind"),
        (kind, "") => format!("{kind} without apiVersion"),
        (kind, version) => format!("{kind} of {version}"),
    }
}

/// The converted object, and the differences.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The object.
    pub object: DeviceConfig,
    /// One line for each difference, with the name of the field.
    pub notes: Vec<String>,
}

/// An object that cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// An object of another kind.
    #[error("{} is not converted: only DeviceConfig of example.com/v1alpha1 is", named(kind, api_version))]
    Kind {
        /// Its kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// A field of the wrong type.
    #[error("{field} must be {wanted}")]
    Type {
        /// The field's path.
        field: String,
        /// The expected type.
        wanted: &'static str,
    },
    /// A missing field.
    #[error("{0} is missing or empty; the sample operator could do nothing without it either")]
    Missing(&'static str),
    /// An empty selector, which is ambiguous for the sample operator.
    #[error(
        "spec.nodeSelector is empty, which the sample operator took for all nodes at first and for {OLD} after its first write: leave it out for the latter, or write the labels of the nodes that are meant",
        OLD = OLD_SELECTOR.0
    )]
    EmptySelector,
    /// An object that the API server would refuse.
    #[error("{0}")]
    Refused(String),
}

/// Converts an object and validates the result.
///
/// # Errors
/// For another kind of object, a field of the wrong type, an ambiguous selector, and a result that is invalid.
pub fn convert(old: &Value) -> Result<Converted, ConvertError> {
    let word = |field: &str| old[field].as_str().unwrap_or_default();
    if word("apiVersion") != OLD_API_VERSION || word("kind") != KIND {
        let (kind, api_version) = (word("kind").to_owned(), word("apiVersion").to_owned());
        return Err(ConvertError::Kind { kind, api_version });
    }
    let mut notes = Vec::new();
    let metadata = metadata(&old["metadata"], &mut notes)?;
    let old_image = text(old, "driverImage")?.ok_or(ConvertError::Missing("spec.driverImage"))?;
    let (driver_image, tag) = repository(old_image, &mut notes);
    let driver_version = match (text(old, "driverVersion")?, tag) {
        (Some(version), _) => version.to_owned(),
        (None, Some(tag)) => {
            notes.push(format!("spec.driverVersion: {tag}, which was the tag of spec.driverImage"));
            tag.to_owned()
        }
        (None, None) => return Err(ConvertError::Missing("spec.driverVersion")),
    };
    for field in old["spec"].as_object().into_iter().flat_map(serde_json::Map::keys) {
        if !["driverImage", "driverVersion", "nodeSelector"].contains(&field.as_str()) {
            notes.push(format!(
                "spec.{field} is left out: the sample operator's DeviceConfig has no such field"
            ));
        }
    }
    let spec = Spec {
        driver_image,
        driver_version,
        node_selector: Some(selector(&old["spec"]["nodeSelector"], &mut notes)?),
        // As the sample operator had it.
        image_pull_policy: Some(PullPolicy::Always),
        ..Spec::default()
    };
    let name = spec.kernel_module().unwrap_or_default().into_owned();
    notes.push("spec.imagePullPolicy: Always, as the sample operator pulled".to_owned());
    notes.push(format!(
        "spec.moduleName is left out, which means {name}: the sample operator never named the module; set it if lsmod shows another name"
    ));
    notes.push(
        "spec.kernelMappings is left out, which means every kernel: the sample operator served names such as 5.14.0-427.el9.x86_64 only"
            .to_owned(),
    );
    let object = DeviceConfig { metadata, spec, ..DeviceConfig::default() };
    let problems: Vec<String> = check(&object).iter().map(ToString::to_string).collect();
    if problems.is_empty() {
        Ok(Converted { object, notes })
    } else {
        Err(ConvertError::Refused(problems.join("; ")))
    }
}

fn wrong(field: impl Into<String>, wanted: &'static str) -> ConvertError {
    ConvertError::Type { field: field.into(), wanted }
}

/// A text of the spec; an empty one counts as absent.
fn text<'v>(old: &'v Value, field: &str) -> Result<Option<&'v str>, ConvertError> {
    match &old["spec"][field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        _ => Err(wrong(format!("spec.{field}"), "a text")),
    }
}

/// A map of texts; `null` is empty.
fn texts(value: &Value, field: &str) -> Result<BTreeMap<String, String>, ConvertError> {
    if value.is_null() {
        return Ok(BTreeMap::new());
    }
    let fields = value.as_object().ok_or_else(|| wrong(field, "a map of texts"))?;
    let one = |(key, value): (&String, &Value)| {
        let text = value.as_str().ok_or_else(|| wrong(format!("{field}[{key:?}]"), "a text"))?;
        Ok((key.clone(), text.to_owned()))
    };
    fields.iter().map(one).collect()
}

/// The metadata that users write, without that of the cluster.
fn metadata(old: &Value, notes: &mut Vec<String>) -> Result<ObjectMeta, ConvertError> {
    let name = old["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or(ConvertError::Missing("metadata.name"))?;
    let labels = texts(&old["labels"], "metadata.labels")?;
    let mut annotations = texts(&old["annotations"], "metadata.annotations")?;
    annotations.remove(LAST_APPLIED);
    if old["finalizers"].as_array().is_some_and(|all| !all.is_empty()) {
        notes.push(
            "metadata.finalizers is left out: take it from the old object by hand when its operator is gone"
                .to_owned(),
        );
    }
    Ok(ObjectMeta {
        name: Some(name.to_owned()),
        namespace: old["namespace"].as_str().map(str::to_owned),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    })
}

/// Splits an image into repository and tag.
fn repository<'i>(image: &'i str, notes: &mut Vec<String>) -> (String, Option<&'i str>) {
    let (rest, digest) = image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    let slash = rest.rfind('/').map_or(0, |at| at + 1);
    let (repository, tag) = match rest[slash..].split_once(':') {
        Some((last, tag)) => (format!("{}{last}", &rest[..slash]), Some(tag)),
        None => (rest.to_owned(), None),
    };
    if let Some(digest) = digest {
        notes.push(format!(
            "spec.driverImage is without its digest {digest}: it would be that of one kernel's image; kernelMappings[].image takes digests"
        ));
    }
    if let Some(tag) = tag {
        notes.push(format!(
            "spec.driverImage is without its tag {tag}: the tag is made of driverVersion and the kernel's version"
        ));
    }
    (repository, tag.filter(|tag| !tag.is_empty()))
}

/// The node selector, with the old default where it is absent.
fn selector(old: &Value, notes: &mut Vec<String>) -> Result<BTreeMap<String, String>, ConvertError> {
    let (key, value) = OLD_SELECTOR;
    if old.is_null() {
        notes.push(format!(
            "spec.nodeSelector: {key}: \"{value}\", which was meant by leaving it out; node feature discovery sets it only with \
             deviceLabelFields: [vendor]"
        ));
        return Ok(BTreeMap::from([(key.to_owned(), value.to_owned())]));
    }
    let labels = texts(old, "spec.nodeSelector")?;
    if labels.is_empty() { Err(ConvertError::EmptySelector) } else { Ok(labels) }
}

#[cfg(test)]
mod tests;
