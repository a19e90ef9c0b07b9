//! Reads an OCI archive back and finds what is wrong with it, by the rules of the image specification and our own.
//!
//! In: the bytes of an archive. Out: what is in it, or the first thing that is not as it must be. It shares no
//! code with the packer but names and the digest, so that a mistake there does not hide itself here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::oci::{CONFIG, Descriptor, Digest, EMPTY, INDEX, LAYER, MANIFEST, SBOM};

/// No document of ours is near it; the layer is, when unpacked.
const LIMIT: u64 = 1 << 30;
/// The program's place in a layer.
const PROGRAM: &str = "tholepin";

/// What an archive holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Name and tag.
    pub(crate) tag: String,
    /// Architectures, as in the index.
    pub(crate) platforms: Vec<String>,
}

#[derive(Deserialize)]
struct Layout {
    #[serde(rename = "imageLayoutVersion")]
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: String,
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    media_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
    artifact_type: Option<String>,
    subject: Option<Descriptor>,
}

#[derive(Deserialize)]
struct Config {
    architecture: String,
    os: String,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    r#type: String,
    diff_ids: Vec<Digest>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// The files of an archive, and which of the blobs some document has named.
struct Files {
    files: BTreeMap<String, Vec<u8>>,
    named: BTreeSet<String>,
}

/// Reads a whole archive.
pub(crate) fn archive(bytes: &[u8]) -> anyhow::Result<Contents> {
    let mut files = Files::read(bytes).context("reading the archive")?;
    let layout: Layout = serde_json::from_slice(files.get("oci-layout")?).context("oci-layout")?;
    ensure!(layout.version == "1.0.0", "layout version {:?} is not 1.0.0", layout.version);
    let top: Index = serde_json::from_slice(files.get("index.json")?).context("index.json")?;
    let [entry] = &top.manifests[..] else { bail!("index.json names {} images", top.manifests.len()) };
    let tag = entry.annotations.get("org.opencontainers.image.ref.name").context("the image has no name")?;
    let index: Index = files.document(entry, INDEX)?;
    for index in [&top, &index] {
        ensure!(index.schema_version == 2 && index.media_type == INDEX, "an index of another kind");
    }
    let (images, attachments): (Vec<_>, Vec<_>) =
        index.manifests.iter().partition(|entry| entry.artifact_type.is_none());
    let platforms = images.iter().map(|image| files.image(image)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut described = BTreeSet::new();
    for attachment in attachments {
        described.insert(files.sbom(attachment)?);
    }
    for image in images {
        ensure!(described.contains(&image.digest), "image {} has no SBOM", image.digest);
    }
    files.all_named()?;
    Ok(Contents { tag: tag.clone(), platforms })
}

/// The program at the root of the only layer that has one.
pub(crate) fn program(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let files = Files::read(bytes).context("reading the archive")?;
    let mut found = Vec::new();
    for blob in files.files.values().filter(|blob| blob.starts_with(&[0x1f, 0x8b])) {
        let unpacked = flate2::read::GzDecoder::new(&blob[..]).take(LIMIT);
        for entry in tar::Archive::new(unpacked).entries()? {
            let mut entry = entry?;
            if entry.path()? == std::path::Path::new(PROGRAM) {
                let mut program = Vec::new();
                entry.read_to_end(&mut program)?;
                found.push(program);
            }
        }
    }
    let [program] = &mut found[..] else { bail!("the archive has {} programs, not 1", found.len()) };
    Ok(std::mem::take(program))
}

impl Files {
    fn read(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes).entries()? {
            let mut entry = entry?;
            if entry.header().entry_type().is_dir() {
                continue;
            }
            let path = entry.path()?.display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            ensure!(files.insert(path.clone(), content).is_none(), "{path} is there twice");
        }
        Ok(Self { files, named: BTreeSet::new() })
    }

    fn get(&self, path: &str) -> anyhow::Result<&[u8]> {
        self.files.get(path).map(Vec::as_slice).with_context(|| format!("{path} is missing"))
    }

    /// The blob that `descriptor` names, if it is what the descriptor says.
    fn blob(&mut self, descriptor: &Descriptor, media_type: &str) -> anyhow::Result<&[u8]> {
        let Descriptor { media_type: found, digest, size, .. } = descriptor;
        ensure!(found == media_type, "blob {digest} is a {found} where a {media_type} belongs");
        let path = format!("blobs/sha256/{}", digest.hex());
        self.named.insert(path.clone());
        let bytes = self.get(&path)?;
        ensure!(bytes.len() as u64 == *size, "blob {digest} has {} bytes and not {size}", bytes.len());
        let real = Digest::of(bytes);
        ensure!(real == *digest, "blob {digest} has the digest {real}");
        Ok(bytes)
    }

    fn document<T: for<'a> Deserialize<'a>>(
        &mut self,
        descriptor: &Descriptor,
        media_type: &str,
    ) -> anyhow::Result<T> {
        let bytes = self.blob(descriptor, media_type)?;
        serde_json::from_slice(bytes).with_context(|| format!("blob {}", descriptor.digest))
    }

    fn manifest(&mut self, descriptor: &Descriptor) -> anyhow::Result<Manifest> {
        let manifest: Manifest = self.document(descriptor, MANIFEST)?;
        ensure!(
            manifest.schema_version == 2 && manifest.media_type == MANIFEST,
            "a manifest of another kind"
        );
        Ok(manifest)
    }

    /// Checks one image; its architecture.
    fn image(&mut self, descriptor: &Descriptor) -> anyhow::Result<String> {
        let manifest = self.manifest(descriptor)?;
        let config: Config = self.document(&manifest.config, CONFIG)?;
        let platform = descriptor.platform.clone().context("an image without a platform")?;
        let platform: Platform = serde_json::from_value(platform).context("a platform")?;
        ensure!(
            (&platform.architecture, &platform.os) == (&config.architecture, &config.os),
            "the index says {}/{}, the image {}/{}",
            platform.os,
            platform.architecture,
            config.os,
            config.architecture
        );
        ensure!(config.rootfs.r#type == "layers", "a root file system of another kind");
        let mut unpacked = Vec::new();
        for layer in &manifest.layers {
            let mut tar = Vec::new();
            let gzip = self.blob(layer, LAYER)?;
            flate2::read::GzDecoder::new(gzip)
                .take(LIMIT)
                .read_to_end(&mut tar)
                .context("unpacking a layer")?;
            unpacked.push(Digest::of(&tar));
        }
        ensure!(unpacked == config.rootfs.diff_ids, "the layers are not those of the configuration");
        Ok(config.architecture)
    }

    /// Checks one SBOM; the image it describes.
    fn sbom(&mut self, descriptor: &Descriptor) -> anyhow::Result<Digest> {
        let manifest = self.manifest(descriptor)?;
        ensure!(manifest.artifact_type == descriptor.artifact_type, "an attachment of another type");
        self.blob(&manifest.config, EMPTY)?;
        for layer in &manifest.layers {
            let _: serde_json::Value = self.document(layer, SBOM)?;
        }
        let subject = manifest.subject.context("an SBOM of no image")?;
        self.blob(&subject, MANIFEST)?;
        Ok(subject.digest)
    }

    fn all_named(&self) -> anyhow::Result<()> {
        let unnamed = self
            .files
            .keys()
            .filter(|path| path.starts_with("blobs/"))
            .find(|path| !self.named.contains(*path));
        unnamed.map_or(Ok(()), |path| bail!("{path} belongs to nothing"))
    }
}
