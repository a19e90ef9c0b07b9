//! `cargo xtask release`: every file that people download.
//!
//! In: this repository at a commit. Out: a folder with programs, the image, the chart, manifests, bundles, SBOMs and
//! checksums. The same commit and tools give the same bytes. Never: a registry, a forge, a signature, a clock.
//! docs/release.md is about using it.

mod contents;
mod krew;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::gotool::output;
use crate::image::{self, Arch, Platform};
use crate::tree::{files, root};
use contents::Release;

/// Where downloads are, unless a flag says so.
const URL: &str = concat!("https://releases.example/v", env!("CARGO_PKG_VERSION"));
/// Shells that have completions.
const SHELLS: [(&str, &str); 5] = [
    ("bash", "tholepin.bash"),
    ("zsh", "_tholepin"),
    ("fish", "tholepin.fish"),
    ("elvish", "tholepin.elv"),
    ("powershell", "tholepin.ps1"),
];

/// Makes the files of a release.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask release\n  cargo xtask release --arch amd64 --out /tmp/release\n  \
    cargo xtask release --repository registry.example/team/tholepin --url https://releases.example/v1"
)]
pub(crate) struct Args {
    /// An architecture; may be repeated [default: amd64 and arm64]
    #[arg(long, value_enum)]
    arch: Vec<Arch>,
    /// Where the files go [default: `tholepin-VERSION` in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the image will be, without a tag
    #[arg(long, value_name = "NAME", default_value = "tholepin", value_parser = image::repository)]
    repository: String,
    /// Where the files will be
    #[arg(long, value_name = "URL", default_value = URL)]
    url: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let archs = architectures(&args.arch);
    let host = Arch::host().filter(|host| archs.contains(host));
    let host = host
        .context("pages and completions are made by the program: this machine's architecture must be one")?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => image::target_folder(&root())?.join(contents::name("")),
    };
    let info = image::info_of(contents::tag(&args.repository))?;
    say("programs");
    let platforms = image::platforms(&archs, &info)?;
    say("completions and man pages");
    let pages = pages(platforms.iter().find(|platform| platform.arch == host).context("no program")?)?;
    let release =
        Release { info, repository: &args.repository, url: &args.url, platforms: &platforms, pages };
    let files = release.files(&mut |what| say(what))?;
    write(&out, &files)
}

fn architectures(chosen: &[Arch]) -> Vec<Arch> {
    let mut archs = if chosen.is_empty() { Arch::ALL.to_vec() } else { chosen.to_vec() };
    archs.sort();
    archs.dedup();
    archs
}

fn say(what: &str) {
    eprintln!("release: {what}");
}

/// Completions and man pages by path, as the program itself writes them.
fn pages(platform: &Platform) -> anyhow::Result<BTreeMap<String, String>> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let program = folder.path().join("tholepin");
    fs::write(&program, &platform.program).context("writing the program")?;
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .context("writing the program")?;
    let mut pages = BTreeMap::new();
    for (shell, file) in SHELLS {
        let (text, _) = output(Command::new(&program).args(["completion", shell]))?;
        pages.insert(format!("completions/{file}"), text);
    }
    let man = folder.path().join("man");
    output(Command::new(&program).arg("man").arg(&man))?;
    pages.extend(files(&man)?.into_iter().map(|(path, text)| (format!("man/man1/{path}"), text)));
    Ok(pages)
}

/// Makes the folder hold these files. One that has others is left alone.
fn write(out: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    for entry in fs::read_dir(out).with_context(|| format!("reading {}", out.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(files.contains_key(&name), "{} has {name}, which is no file of this release", out.display());
    }
    for (name, bytes) in files {
        let path = out.join(name);
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        println!("{:>10.2} MiB  {}", bytes.len() as f64 / f64::from(1 << 20), path.display());
    }
    Ok(())
}
