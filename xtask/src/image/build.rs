//! Builds the program that goes into an image.
//!
//! In: an architecture and this repository. Out: a statically linked program in which no folder of this machine
//! is named, so that the same sources and tools give the same bytes anywhere; and what besides crates is in it.
//! What is missing on this machine is said at once and with the commands that help. Never: a download, but for
//! cargo's own of locked crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::arch::Arch;
use super::sbom::{Metadata, Part};
use crate::cargo;

/// Begins the version text in every glibc.
const BANNER: &[u8] = b"GNU C Library (";

/// A folder of this machine and what the program calls it.
pub(crate) struct Mapped {
    folder: PathBuf,
    name: String,
    /// What is only ever under this folder; the folder alone may be as short as `/src`.
    sign: &'static str,
}

/// What is there to build with.
#[derive(Clone, Copy, Debug, Default)]
struct Tools {
    std: bool,
    linker: bool,
    libc: bool,
}

/// What cargo knows about the workspace at `root`, built for `arch`.
pub(crate) fn metadata(root: &Path, arch: Arch) -> anyhow::Result<Metadata> {
    let mut cargo = locked(root, "metadata");
    cargo.args(["--format-version", "1", "--filter-platform", arch.target()]);
    serde_json::from_str(&output(&mut cargo)?).context("cargo metadata")
}

/// The crates linked into the program, one `name vVERSION` a line.
pub(crate) fn tree(root: &Path, arch: Arch) -> anyhow::Result<String> {
    let mut cargo = locked(root, "tree");
    cargo.args(["--package", "tholepin", "--edges", "normal,no-proc-macro", "--target", arch.target()]);
    output(cargo.args(["--prefix", "none", "--format", "{p}"]))
}

/// Fails, naming everything that is missing to build for `archs`.
pub(crate) fn check_tools(archs: &[Arch]) -> anyhow::Result<()> {
    let missing: Vec<_> = archs.iter().flat_map(|arch| missing(*arch, Tools::here(*arch))).collect();
    ensure!(missing.is_empty(), "cannot build here:\n  {}", missing.join("\n  "));
    Ok(())
}

/// Builds; the program's file. It knows the commit it is of.
pub(crate) fn program(
    arch: Arch,
    metadata: &Metadata,
    mapped: &[Mapped],
    commit: Option<&str>,
) -> anyhow::Result<PathBuf> {
    eprintln!("building tholepin for {} (profile {}, static)", arch.oci(), cargo::DIST);
    let mut flags = vec!["-C".to_owned(), "target-feature=+crt-static".to_owned()];
    flags.extend(mapped.iter().map(Mapped::flag));
    let mut cargo = locked(Path::new(&metadata.workspace_root), "build");
    cargo.args([
        "--profile",
        cargo::DIST,
        "--quiet",
        "--package",
        "tholepin",
        "--bin",
        "tholepin",
        "--target",
        arch.target(),
    ]);
    // In this form folders may have spaces in their names, and nothing else adds flags.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    cargo.env("THOLEPIN_COMMIT", commit.unwrap_or_default());
    if Arch::host() != Some(arch) {
        let target = arch.target().to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{target}_LINKER"), arch.linker());
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "building tholepin for {} failed", arch.oci());
    Ok(Path::new(&metadata.target_directory).join(arch.target()).join(cargo::DIST).join("tholepin"))
}

/// The folders of this machine that compilers write into programs.
pub(crate) fn mapped(metadata: &Metadata) -> anyhow::Result<Vec<Mapped>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("no home folder")?;
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let commit =
        rustc.lines().find_map(|line| line.strip_prefix("commit-hash: ")).context("rustc has no commit")?;
    let sysroot = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    let entry = |folder: PathBuf, name: &str, sign| Mapped { folder, name: name.to_owned(), sign };
    let mut mapped = vec![
        entry(PathBuf::from(&metadata.workspace_root), "/src", "/crates/"),
        entry(home, "/cargo", "/registry/"),
        // With its sources installed, rustc writes where they are, and without them what is on the right.
        entry(sysroot.join("lib/rustlib/src/rust"), &format!("/rustc/{commit}"), "/library/"),
    ];
    let target = PathBuf::from(&metadata.target_directory);
    if !target.starts_with(&metadata.workspace_root) {
        mapped.push(entry(target, "/target", "/dist/"));
    }
    Ok(mapped)
}

/// What must not be in the program.
pub(crate) fn signs(mapped: &[Mapped]) -> Vec<String> {
    let moved = mapped.iter().filter(|entry| entry.folder != Path::new(&entry.name));
    moved.map(|entry| format!("{}{}", entry.folder.display(), entry.sign)).collect()
}

/// What is linked besides crates: Rust's library, the C library, the compiler's.
pub(crate) fn runtime(arch: Arch) -> anyhow::Result<Vec<Part>> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let rust =
        rustc.lines().find_map(|line| line.strip_prefix("release: ")).context("rustc has no release")?;
    let archive = archive(arch, "libc.a").context("no libc.a")?;
    let libc = std::fs::read(&archive).with_context(|| archive.display().to_string())?;
    let libc = libc_version(&libc).with_context(|| format!("{}: no version in it", archive.display()))?;
    let gcc = output(Command::new(arch.linker()).args(["-dumpfullversion", "-dumpversion"]))?;
    Ok(vec![
        Part::runtime("rust-std", rust, "MIT OR Apache-2.0"),
        Part::runtime("glibc", &libc, "LGPL-2.1-or-later"),
        Part::runtime("libgcc", gcc.trim(), "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ])
}

impl Mapped {
    fn flag(&self) -> String {
        format!("--remap-path-prefix={}={}", self.folder.display(), self.name)
    }
}

impl Tools {
    fn here(arch: Arch) -> Self {
        let mut rustc = Command::new("rustc");
        let folder = output(rustc.args(["--print", "target-libdir", "--target", arch.target()]));
        Self {
            std: folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir()),
            linker: output(Command::new(arch.linker()).arg("-dumpmachine")).is_ok(),
            libc: archive(arch, "libc.a").is_some(),
        }
    }
}

fn missing(arch: Arch, tools: Tools) -> Vec<String> {
    let mut missing = Vec::new();
    let target = arch.target();
    if !tools.std {
        missing.push(format!("no Rust standard library for {target}: `rustup target add {target}` gets it"));
    }
    if !tools.linker || !tools.libc {
        let what = if tools.linker {
            "static C library (libc.a)".to_owned()
        } else {
            format!("`{}`", arch.linker())
        };
        let packages = arch.packages();
        missing
            .push(format!("no {what} for {}: on Debian, `apt-get install {packages}` gets it", arch.oci()));
    }
    missing
}

/// Where the linker has this archive, if it has it: else it answers with the bare name.
fn archive(arch: Arch, name: &str) -> Option<PathBuf> {
    let answer = output(Command::new(arch.linker()).arg(format!("-print-file-name={name}"))).ok()?;
    let path = PathBuf::from(answer.trim());
    path.is_absolute().then_some(path)
}

/// `2.36-9+deb12u14` of `GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.`: the last
/// word in the brackets, which tells patched ones apart.
fn libc_version(archive: &[u8]) -> Option<String> {
    let at = archive.windows(BANNER.len()).position(|window| window == BANNER)?;
    let line = archive[at..].split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (_, rest) = line.split_once('(')?;
    let (brackets, rest) = rest.split_once(')')?;
    let plain = || rest.rsplit(' ').next().map(|word| word.trim_end_matches('.'));
    brackets
        .rsplit(' ')
        .next()
        .filter(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        .or_else(plain)
        .map(str::to_owned)
}

fn locked(root: &Path, command: &str) -> Command {
    let mut cargo = cargo::command(command);
    cargo.current_dir(root).arg("--locked");
    cargo
}

/// What a program prints; an error with the last of what it complained about.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}", complaint.trim().lines().last().unwrap_or("failed without a word"));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed something that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_helps() {
        let foreign = Arch::ALL.into_iter().find(|arch| Arch::host() != Some(*arch)).unwrap();
        let check = |tools: Tools, wanted: &[&str]| {
            let got = missing(foreign, tools);
            assert_eq!(got.len(), wanted.len(), "{got:?}");
            got.iter().zip(wanted).for_each(|(got, part)| assert!(got.contains(part), "{got}"));
        };
        let all = Tools { std: true, linker: true, libc: true };
        check(all, &[]);
        check(Tools { libc: false, ..all }, &["libc.a"]);
        check(Tools { linker: false, ..all }, &["-linux-gnu-gcc"]);
        check(Tools::default(), &["`rustup target add", "`apt-get install gcc-"]);
    }

    #[test]
    fn the_c_library_says_which_it_is() {
        let check = |text: &str, wanted: Option<&str>| {
            assert_eq!(libc_version(text.as_bytes()).as_deref(), wanted, "{text}");
        };
        let debian = "\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright";
        check(debian, Some("2.36-9+deb12u14"));
        check("GNU C Library (GNU libc) stable release version 2.41.\n", Some("2.41"));
        check("GNU C Library (cut", None);
        check("musl", None);
    }

    #[test]
    fn a_folder_that_keeps_its_name_is_not_looked_for() {
        let entry =
            |folder: &str| Mapped { folder: folder.into(), name: "/src".to_owned(), sign: "/crates/" };
        assert_eq!(signs(&[entry("/home/a b"), entry("/src")]), ["/home/a b/crates/"]);
        assert_eq!(entry("/home/a b").flag(), "--remap-path-prefix=/home/a b=/src");
    }
}
