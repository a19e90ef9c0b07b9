//! The documents of an OCI image and the archive they lie in.
//!
//! In: one [`Platform`] for each architecture, and what is said about all of them. Out: the bytes of an OCI
//! archive (a tar file of an image layout) with one index of images, and beside each image its SBOM, attached
//! the way registries show it (`subject`). The same input gives the same bytes. Never: the file system, a
//! clock, a registry.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context as _;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tar::EntryType;

use super::arch::Arch;
use super::layer::{self, Layer};

/// Media types. Those of the documents stand in them, too.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const EMPTY: &str = "application/vnd.oci.empty.v1+json";
pub(crate) const SBOM: &str = "application/vnd.cyclonedx+json";

/// Where the program is in the image.
const ENTRYPOINT: &str = "/tholepin";
/// What shells and container engines have had for ever; everything is in `/bin`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The SHA-256 of some bytes, as `sha256:` and 64 digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Digest(String);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hash = digest(&SHA256, bytes);
        Self(hash.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}")))
    }

    /// The digits alone.
    pub(crate) fn hex(&self) -> &str {
        self.0.trim_start_matches("sha256:")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How documents name a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// What is the same for all architectures.
#[derive(Clone, Debug)]
pub(crate) struct ImageInfo {
    /// Name and tag: what engines call the image they load.
    pub(crate) tag: String,
    /// Our version.
    pub(crate) version: String,
    /// The commit, if it is known.
    pub(crate) revision: Option<String>,
    /// Seconds since 1970, of every file and document.
    pub(crate) created: u64,
    /// User and group the program runs as when a pod does not say.
    pub(crate) user: String,
}

/// One architecture's part.
pub(crate) struct Platform {
    pub(crate) arch: Arch,
    /// The program itself, which the layer has too.
    pub(crate) program: Vec<u8>,
    pub(crate) layer: Layer,
    /// A CycloneDX document.
    pub(crate) sbom: Vec<u8>,
}

/// An archive.
pub(crate) struct Archive {
    /// The tar file.
    pub(crate) bytes: Vec<u8>,
    /// The digest by which the image can be pulled once it is in a registry: that of the index of architectures.
    pub(crate) digest: Digest,
}

impl ImageInfo {
    /// `created` as documents have it.
    pub(crate) fn created_text(&self) -> anyhow::Result<String> {
        let seconds = i64::try_from(self.created).context("the time of the image")?;
        Ok(jiff::Timestamp::from_second(seconds).context("the time of the image")?.to_string())
    }

    fn labels(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            labels.insert(format!("org.opencontainers.image.{key}"), value.to_owned());
        };
        add("title", "tholepin");
        add("description", "NUMA-aware scheduling for Kubernetes");
        add("version", &self.version);
        add("licenses", "Apache-2.0");
        add("created", &self.created_text()?);
        if let Some(revision) = &self.revision {
            add("revision", revision);
        }
        Ok(labels)
    }
}

/// An archive of images for `platforms`.
pub(crate) fn archive(info: &ImageInfo, platforms: &[Platform]) -> anyhow::Result<Archive> {
    let mut blobs = Blobs::default();
    let mut images = Vec::new();
    let mut sboms = Vec::new();
    for platform in platforms {
        let image = image(&mut blobs, info, platform)?;
        sboms.push(attachment(&mut blobs, info, platform, &image)?);
        images.push(Descriptor {
            platform: Some(json!({"architecture": platform.arch.oci(), "os": "linux"})),
            ..image
        });
    }
    images.extend(sboms);
    blobs.archive(info, &images)
}

/// An archive of files that are not run, such as an operator's bundle, with these labels. It says that it is
/// for amd64, as engines and registries want to know of every image.
pub(crate) fn archive_of_files(
    info: &ImageInfo,
    layer: &Layer,
    labels: &BTreeMap<String, String>,
) -> anyhow::Result<Archive> {
    let mut blobs = Blobs::default();
    let created = info.created_text()?;
    let config = json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": created, "created_by": "cargo xtask image"}],
    });
    let config = blobs.document(CONFIG, &config)?;
    let layer = blobs.add(LAYER, layer.gzip.clone());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": labels,
    });
    let image = blobs.document(MANIFEST, &manifest)?;
    let platform = Some(json!({"architecture": "amd64", "os": "linux"}));
    blobs.archive(info, &[Descriptor { platform, ..image }])
}

fn image(blobs: &mut Blobs, info: &ImageInfo, platform: &Platform) -> anyhow::Result<Descriptor> {
    let created = info.created_text()?;
    let config = json!({
        "created": created,
        "architecture": platform.arch.oci(),
        "os": "linux",
        "config": {
            "User": info.user,
            "Env": [format!("PATH={PATH}")],
            "Entrypoint": [ENTRYPOINT],
            "WorkingDir": "/",
            "Labels": info.labels()?,
        },
        "rootfs": {"type": "layers", "diff_ids": [platform.layer.diff_id]},
        "history": [{"created": created, "created_by": "cargo xtask image"}],
    });
    let config = blobs.document(CONFIG, &config)?;
    let layer = blobs.add(LAYER, platform.layer.gzip.clone());
    blobs.document(
        MANIFEST,
        &json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": info.labels()?,
        }),
    )
}

/// The SBOM as a document of its own that names the image it belongs to. Engines that choose by platform pass it by.
fn attachment(
    blobs: &mut Blobs,
    info: &ImageInfo,
    platform: &Platform,
    image: &Descriptor,
) -> anyhow::Result<Descriptor> {
    let mut sbom = blobs.add(SBOM, platform.sbom.clone());
    let title = format!("tholepin-{}.cdx.json", platform.arch.oci());
    sbom.annotations.insert("org.opencontainers.image.title".to_owned(), title);
    let empty = blobs.document(EMPTY, &json!({}))?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SBOM, "config": empty, "layers": [sbom], "subject": image,
        "annotations": {"org.opencontainers.image.created": info.created_text()?},
    });
    Ok(Descriptor {
        artifact_type: Some(SBOM.to_owned()),
        platform: Some(json!({"architecture": "unknown", "os": "unknown"})),
        ..blobs.document(MANIFEST, &manifest)?
    })
}

/// Blobs by digest.
#[derive(Default)]
struct Blobs(BTreeMap<Digest, Vec<u8>>);

impl Blobs {
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let digest = Digest::of(&bytes);
        let size = bytes.len() as u64;
        self.0.insert(digest.clone(), bytes);
        let annotations = BTreeMap::new();
        Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            artifact_type: None,
            platform: None,
            annotations,
        }
    }

    /// Objects keep one order of keys, and so the bytes depend on the content alone.
    fn document(&mut self, media_type: &str, document: &serde_json::Value) -> anyhow::Result<Descriptor> {
        Ok(self.add(media_type, serde_json::to_vec(document)?))
    }

    /// All of them in an archive, with an index of these.
    fn archive(mut self, info: &ImageInfo, manifests: &[Descriptor]) -> anyhow::Result<Archive> {
        let index = self.document(
            INDEX,
            &json!({
                "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": info.labels()?,
            }),
        )?;
        let digest = index.digest.clone();
        // One entry: with several, tools would ask which one is meant.
        let name = BTreeMap::from([("org.opencontainers.image.ref.name".to_owned(), info.tag.clone())]);
        let entry = Descriptor { annotations: name, ..index };
        let top = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
        let mut files = self.files();
        files.insert("index.json".to_owned(), serde_json::to_vec(&top)?);
        files.insert("oci-layout".to_owned(), serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?);
        let bytes = tar_of(&files, info.created).context("writing the archive")?;
        Ok(Archive { bytes, digest })
    }

    fn files(self) -> BTreeMap<String, Vec<u8>> {
        self.0.into_iter().map(|(digest, bytes)| (format!("blobs/sha256/{}", digest.hex()), bytes)).collect()
    }
}

fn tar_of(files: &BTreeMap<String, Vec<u8>>, mtime: u64) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for folder in ["blobs/", "blobs/sha256/"] {
        let mut header = layer::header(EntryType::Directory, 0o755, &[], mtime);
        archive.append_data(&mut header, folder, [].as_slice())?;
    }
    for (path, bytes) in files {
        let mut header = layer::header(EntryType::Regular, 0o644, bytes, mtime);
        archive.append_data(&mut header, path, bytes.as_slice())?;
    }
    archive.into_inner()
}
