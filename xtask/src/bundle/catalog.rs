//! The file-based catalog of a package: one channel, whose head is the bundle.
//!
//! In: the CSV. Out: its documents (`olm.package`, `olm.channel`, `olm.bundle`). Never: a description that is
//! not the CSV's.

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Source;
use super::csv::{self, RelatedImage, ServiceVersion, VERSION};
use super::metadata::CHANNEL;

/// One document of a catalog.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Blob {
    Package(Package),
    Channel(Channel),
    Bundle(Bundle),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Package {
    schema: &'static str,
    name: &'static str,
    default_channel: &'static str,
    description: &'static str,
    icon: Icon,
}

/// As in the CSV, under other names.
#[derive(Serialize)]
struct Icon {
    base64data: String,
    mediatype: &'static str,
}

#[derive(Serialize)]
pub(crate) struct Channel {
    schema: &'static str,
    package: &'static str,
    name: &'static str,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    skip_range: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bundle {
    schema: &'static str,
    name: String,
    package: &'static str,
    image: String,
    properties: Vec<Property>,
    related_images: Vec<RelatedImage>,
}

#[derive(Serialize)]
struct Property {
    #[serde(rename = "type")]
    kind: &'static str,
    value: Value,
}

/// The documents.
pub(crate) fn blobs(csv: &ServiceVersion, source: &Source) -> anyhow::Result<Vec<Blob>> {
    let icon = csv.spec.icon.first().context("the CSV has no icon")?;
    let name = source.package.name;
    let package = Package {
        schema: "olm.package",
        name,
        default_channel: CHANNEL,
        description: csv.spec.description,
        icon: Icon { base64data: icon.base64data.clone(), mediatype: icon.mediatype },
    };
    let entry = Entry { name: csv::name(source.package), skip_range: format!("<{VERSION}") };
    let channel = Channel { schema: "olm.channel", package: name, name: CHANNEL, entries: vec![entry] };
    let mut related_images = csv.spec.related_images.clone();
    related_images.insert(0, RelatedImage { name: "", image: source.bundle_image.clone() });
    let bundle = Bundle {
        schema: "olm.bundle",
        name: csv::name(source.package),
        package: name,
        image: source.bundle_image.clone(),
        properties: properties(name, csv)?,
        related_images,
    };
    Ok(vec![Blob::Package(package), Blob::Channel(channel), Blob::Bundle(bundle)])
}

/// All documents as text.
pub(crate) fn text(blobs: &[Blob]) -> anyhow::Result<String> {
    let document =
        |blob: &Blob| Ok(format!("---\n{}", runtime::yaml::write(blob).context("writing the catalog")?));
    blobs.iter().map(document).collect()
}

/// What is installed with it, which version it is, and what a console shows of it.
fn properties(package: &str, csv: &ServiceVersion) -> anyhow::Result<Vec<Property>> {
    let owned = &csv.spec.customresourcedefinitions.owned;
    let kind = |owned: &super::descriptors::Owned| Property {
        kind: "olm.gvk",
        value: json!({ "group": owned.group(), "kind": owned.kind, "version": owned.version }),
    };
    let mut properties: Vec<Property> = owned.iter().map(kind).collect();
    properties
        .push(Property { kind: "olm.package", value: json!({ "packageName": package, "version": VERSION }) });
    properties.push(Property { kind: "olm.csv.metadata", value: metadata(csv)? });
    Ok(properties)
}

/// The part of the CSV that consoles read, as opm takes it out of bundles.
fn metadata(csv: &ServiceVersion) -> anyhow::Result<Value> {
    let spec = serde_json::to_value(&csv.spec).context("the CSV")?;
    let shown =
        ["description", "displayName", "installModes", "keywords", "maturity", "minKubeVersion", "provider"];
    let mut value: Map<String, Value> =
        shown.iter().map(|field| ((*field).to_owned(), spec[*field].clone())).collect();
    value.insert("annotations".to_owned(), serde_json::to_value(&csv.metadata.annotations)?);
    value.insert("labels".to_owned(), serde_json::to_value(&csv.metadata.labels)?);
    let owned = csv.spec.customresourcedefinitions.owned.iter().map(|owned| {
        json!({
            "name": owned.name, "version": owned.version, "kind": owned.kind, "displayName": owned.display_name,
            "description": owned.description,
        })
    });
    value.insert("crdDescriptions".to_owned(), json!({ "owned": owned.collect::<Vec<_>>() }));
    value.insert("apiServiceDefinitions".to_owned(), json!({}));
    Ok(Value::Object(value))
}
