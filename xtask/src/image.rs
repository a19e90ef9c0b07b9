//! `cargo xtask image`: a container image with nothing in it but the program.
//!
//! In: this repository, architectures. Out: an OCI archive with an image for each, their SBOMs, and on request
//! the image in the storage of buildah or podman. The same sources and tools give the same bytes, in any folder
//! and at any time. Never: a registry, a base image, a container engine to build with. docs/images.md is about
//! using it.

mod arch;
mod audit;
mod build;
mod elf;
pub(crate) mod layer;
mod oci;
mod revision;
mod sbom;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

use crate::bundle::Annotations;

use layer::Layer;

pub(crate) use arch::Arch;
pub(crate) use oci::{Archive, Digest, ImageInfo, Platform};
use revision::Revision;

/// The size that the program should keep below, in bytes: 34 MiB. A larger one is packed with a warning: no test builds
/// it, so a refusal would come when an image is needed.
pub(crate) const LIMIT: u64 = 34 << 20;

/// The user and group of the program in pods that do not name one.
const USER: &str = "65532:65532";

/// Builds the program statically and packs it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask image\n  cargo xtask image --arch amd64 --arch arm64 --tag registry.example/tholepin:1\n  \
    cargo xtask image --load podman\n  cargo xtask image --bundle bundle\n  skopeo copy --all oci-archive:target/image/tholepin.oci.tar docker://REGISTRY/tholepin:1"
)]
pub(crate) struct Args {
    /// An architecture; may be repeated [default: this machine's]
    #[arg(long, value_enum)]
    arch: Vec<Arch>,
    /// Where the archive and the SBOMs go [default: `image` in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Name and tag of the image [default: this version of `tholepin`, or of the bundle, as its archive is named]
    #[arg(long, value_name = "NAME", value_parser = tag)]
    tag: Option<String>,
    /// User and group of the program in pods that do not name one
    #[arg(long, value_name = "UID:GID", default_value = USER, value_parser = user)]
    user: String,
    /// Also put the image into the storage of this engine
    #[arg(long, value_enum)]
    load: Option<Engine>,
    /// A program built like ours, instead of building it; for one architecture
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Pack an operator's bundle in this folder, as `cargo xtask bundle` writes it, instead of the program
    #[arg(long, value_name = "DIR", conflicts_with_all = ["arch", "binary", "user"])]
    bundle: Option<PathBuf>,
}

/// Something with a storage of images.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    Buildah,
    Podman,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = root()?;
    if let Some(folder) = &args.bundle {
        return bundle(args, root, folder);
    }
    let archs = architectures(args)?;
    if args.binary.is_none() {
        build::check_tools(&archs)?;
    }
    let info = info(args, "tholepin", Revision::of(root)?);
    let mut platforms = Vec::new();
    for arch in archs {
        platforms.push(platform(root, arch, args.binary.as_deref(), &info)?);
    }
    let archive = archive(&info, &platforms)?;
    let folder = output_folder(args, root)?;
    for platform in &platforms {
        write(&folder.join(format!("tholepin-{}.cdx.json", platform.arch.oci())), &platform.sbom)?;
    }
    let path = folder.join("tholepin.oci.tar");
    write(&path, &archive.bytes)?;
    println!("{} {}", info.tag, archive.digest);
    args.load.map_or(Ok(()), |engine| engine.load(&path, &info.tag))
}

/// The program in an archive with an image for one architecture.
pub(crate) fn packed_program(archive: &[u8]) -> anyhow::Result<Vec<u8>> {
    audit::archive(archive).context("the archive is not as it must be")?;
    audit::program(archive)
}

/// The programs for some architectures, built, with what belongs to each.
pub(crate) fn platforms(archs: &[Arch], info: &ImageInfo) -> anyhow::Result<Vec<Platform>> {
    build::check_tools(archs)?;
    let root = root()?;
    archs.iter().map(|arch| platform(root, *arch, None, info)).collect()
}

/// The archive of an image for some architectures, read back.
pub(crate) fn archive(info: &ImageInfo, platforms: &[Platform]) -> anyhow::Result<Archive> {
    let archive = oci::archive(info, platforms)?;
    audit::archive(&archive.bytes).context("the archive is not as it must be")?;
    Ok(archive)
}

/// What all images of this commit have in common.
pub(crate) fn info_of(tag: String) -> anyhow::Result<ImageInfo> {
    Ok(ImageInfo::of(Revision::of(root()?)?, tag, USER))
}

/// The name of an image without a tag, as engines take it.
pub(crate) fn repository(text: &str) -> Result<String, String> {
    let has_tag = text.rsplit('/').next().is_some_and(|last| last.contains(':'));
    if !has_tag && tag(&format!("{text}:1")).is_ok() {
        return Ok(text.to_owned());
    }
    Err("must be a name of small letters, digits and ._-/ (and a port), without a tag".to_owned())
}

/// Packs a bundle: its folders, with what its metadata says as labels.
fn bundle(args: &Args, root: &Path, bundle: &Path) -> anyhow::Result<()> {
    let texts = crate::tree::files(bundle)?;
    let info = |name: &str| Ok(info(args, name, Revision::of(root)?));
    let (name, info, archive) =
        bundle_archive(&texts, info).with_context(|| format!("packing {}", bundle.display()))?;
    let path = output_folder(args, root)?.join(format!("{name}.oci.tar"));
    write(&path, &archive.bytes)?;
    println!("{} {}", info.tag, archive.digest);
    args.load.map_or(Ok(()), |engine| engine.load(&path, &info.tag))
}

/// The name of a bundle's image, what it says of itself, and its archive.
pub(crate) fn bundle_archive(
    texts: &BTreeMap<String, String>,
    info: impl FnOnce(&str) -> anyhow::Result<ImageInfo>,
) -> anyhow::Result<(String, ImageInfo, Archive)> {
    let mut texts = texts.clone();
    texts.retain(|path, _| !path.ends_with(".Dockerfile"));
    let metadata = Annotations::read(texts.get("metadata/annotations.yaml").context("this is no bundle")?)?;
    let name = metadata.image()?;
    let info = info(&name)?;
    let layer = Layer::of_texts(&texts, info.created)?;
    let archive = oci::archive_of_files(&info, &layer, &metadata.labels())?;
    Ok((name, info, archive))
}

fn output_folder(args: &Args, root: &Path) -> anyhow::Result<PathBuf> {
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => target_folder(root)?.join("image"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// The program as it goes into the image for this machine's architecture, built if need be.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let arch = Arch::host().context("no image can be for this machine's architecture")?;
    build::check_tools(&[arch])?;
    let root = root()?;
    let metadata = build::metadata(root, arch)?;
    let commit = Revision::of(root)?.commit;
    build::program(arch, &metadata, &build::mapped(&metadata)?, commit.as_deref())
}

fn root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")
}

fn architectures(args: &Args) -> anyhow::Result<Vec<Arch>> {
    let mut archs = args.arch.clone();
    if archs.is_empty() {
        archs.push(
            Arch::host().context("images cannot be for this machine's architecture; choose with --arch")?,
        );
    }
    archs.sort();
    archs.dedup();
    ensure!(args.binary.is_none() || archs.len() == 1, "--binary is for one --arch");
    Ok(archs)
}

fn info(args: &Args, name: &str, revision: Revision) -> ImageInfo {
    let tag = args.tag.clone().unwrap_or_else(|| format!("{name}:{}", env!("CARGO_PKG_VERSION")));
    ImageInfo::of(revision, tag, &args.user)
}

impl ImageInfo {
    fn of(revision: Revision, tag: String, user: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let Revision { commit, time } = revision;
        Self { tag, version, revision: commit, created: time, user: user.to_owned() }
    }
}

/// The program, checked, and what else is in its image.
fn platform(root: &Path, arch: Arch, binary: Option<&Path>, info: &ImageInfo) -> anyhow::Result<Platform> {
    let metadata = build::metadata(root, arch)?;
    let mapped = build::mapped(&metadata)?;
    let path = match binary {
        Some(path) => path.to_owned(),
        None => build::program(arch, &metadata, &mapped, info.revision.as_deref())?,
    };
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let program = read(&path)?;
    let checked = || {
        elf::check(&program, arch)?;
        elf::check_paths(&program, &build::signs(&mapped))?;
        anyhow::Ok(())
    };
    checked().with_context(|| format!("{}", path.display()))?;
    if program.len() as u64 > LIMIT {
        eprintln!("warning: {} has {} bytes, more than {LIMIT}", path.display(), program.len());
    }
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let crates = sbom::linked(&metadata, &build::tree(root, arch)?, &lock)?;
    let created = info.created_text()?;
    let subject =
        sbom::Subject { program: &program, version: &info.version, target: arch.target(), created: &created };
    let sbom = sbom::document(&subject, &crates, &build::runtime(arch)?)?;
    let licence = fs::read_to_string(root.join("LICENSE")).context("reading LICENSE")?;
    let layer = Layer::new(&program, &licence, info.created)?;
    Ok(Platform { arch, program, layer, sbom })
}

pub(crate) fn target_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let host = Arch::host().unwrap_or(Arch::Amd64);
    Ok(build::metadata(root, host)?.target_directory.into())
}

/// Replaces the file as a whole: a reader never sees half an archive.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, bytes).with_context(|| format!("writing {}", partial.display()))?;
    fs::rename(&partial, path).with_context(|| format!("writing {}", path.display()))?;
    println!("{} ({:.1} MiB)", path.display(), bytes.len() as f64 / f64::from(1 << 20));
    Ok(())
}

impl Engine {
    fn load(self, archive: &Path, tag: &str) -> anyhow::Result<()> {
        let (program, args) = self.command(archive);
        let done = Command::new(program).args(&args).status();
        let status =
            done.with_context(|| format!("cannot run {program}; the archive is {}", archive.display()))?;
        ensure!(status.success(), "{program} {} failed", args.join(" "));
        println!("loaded into {program} as {tag}");
        Ok(())
    }

    fn command(self, archive: &Path) -> (&'static str, Vec<String>) {
        let path = archive.display().to_string();
        match self {
            Self::Buildah => ("buildah", vec!["pull".to_owned(), format!("oci-archive:{path}")]),
            Self::Podman => ("podman", vec!["load".to_owned(), "--input".to_owned(), path]),
        }
    }
}

/// A name as container engines take it: host and folders of small letters, then a tag.
fn tag(text: &str) -> Result<String, String> {
    let (name, tag) = text.rsplit_once(':').unwrap_or((text, ""));
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/:".contains(c);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let ends = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let good = ends(name) && name.chars().all(small) && ends(tag) && tag.chars().all(plain);
    if good && text.len() <= 255 && tag.len() <= 128 {
        return Ok(text.to_owned());
    }
    Err("must be NAME:TAG, at most 255 characters: the name of small letters, digits and ._-/ (and a port), the tag of letters, \
         digits and ._-"
        .to_owned())
}

/// Numbers: pods that must not run as root are refused when the image has a name here.
fn user(text: &str) -> Result<String, String> {
    let ids =
        text.split_once(':').and_then(|(uid, gid)| uid.parse::<u32>().ok().zip(gid.parse::<u32>().ok()));
    ids.map(|(uid, gid)| format!("{uid}:{gid}")).ok_or_else(|| "must be two numbers, UID:GID".to_owned())
}

/// A program that cannot run.
#[cfg(test)]
pub(crate) fn sample_program(arch: Arch) -> Vec<u8> {
    elf::tests::program(arch, &[1])
}

#[cfg(test)]
mod tests;
