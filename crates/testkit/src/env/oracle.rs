//! Where the programs of releases of Kubernetes come from: the oracle of [`crate::oracle`], and the kubelet itself.
//!
//! In: a release, the Go sources and module files under `testenv/`. Out: the path of a program in the cache. An oracle
//! is named by its sources, so that other sources are another program. Never: a program for a release that is not
//! listed here.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;

use super::build::{self, Progress};
use super::{KUBERNETES_VERSION, Program, SkipReason, cache_root, is_executable, on_path, skipped};

/// A release of Kubernetes whose kubelet can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 1.34.
    V1_34,
    /// 1.35.
    V1_35,
    /// 1.36, that of the rig.
    #[default]
    V1_36,
    /// 1.37.
    V1_37,
}

/// A text that names no release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no oracle of Kubernetes {0:?}: use one of 1.34, 1.35, 1.36, 1.37")]
pub struct UnknownRelease(String);

/// Sources are read once: they do not change under a running program that was built from them.
static NAMES: LazyLock<[String; 4]> = LazyLock::new(|| {
    Release::ALL.map(|release| {
        let digest = release.digest().unwrap_or_default();
        format!("oracle-{}-{:08x}", release.minor(), digest as u32)
    })
});

impl Release {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    /// The minor version, as in `1.36`.
    #[must_use]
    pub const fn minor(self) -> &'static str {
        match self {
            Self::V1_34 => "1.34",
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }

    /// The whole version, as in `v1.36.3`.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::V1_34 => "v1.34.4",
            Self::V1_35 => "v1.35.4",
            Self::V1_36 => KUBERNETES_VERSION,
            Self::V1_37 => "v1.37.2",
        }
    }

    /// The name of the program, which says what it was built from.
    #[must_use]
    pub fn program_name(self) -> &'static str {
        &NAMES[self as usize]
    }

    /// The module file for Go's `-modfile`, beside the one of the programs of the rig. 1.36 is of that module.
    #[must_use]
    pub fn module_file(self) -> Option<PathBuf> {
        let file = build::sources().join("oracle").join(self.minor()).join("go.mod");
        (self != Self::default()).then_some(file)
    }

    /// The Go build tag that chooses between files of the source.
    pub(super) fn tag(self) -> String {
        format!("k{}", self.minor().replace('.', ""))
    }

    /// The oracle, if it was built.
    ///
    /// # Errors
    /// The reason to skip.
    pub fn find(self) -> Result<PathBuf, SkipReason> {
        find_of_release(self.into())
    }

    /// The oracle, built if it is nowhere. Says so when it cannot be had, as [`super::rig`] does.
    ///
    /// # Errors
    /// The reason to skip.
    ///
    /// # Panics
    /// With [`super::REQUIRE`] set, instead of letting the test skip.
    pub fn program(self) -> Result<PathBuf, SkipReason> {
        skipped(self.find_or_build(&mut |_| {}))
    }

    /// As [`Release::program`], for callers that have their own way to say it and that show the progress.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn find_or_build(self, tell: &mut dyn FnMut(Progress)) -> Result<PathBuf, SkipReason> {
        find_or_build(self.into(), tell)
    }

    /// The kubelet of the release, built if it is nowhere: minutes at the first time.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn kubelet(self, tell: &mut dyn FnMut(Progress)) -> Result<PathBuf, SkipReason> {
        find_or_build(Program::KubeletOf(self), tell)
    }

    /// The files that decide what the program does, in order.
    fn inputs(self) -> io::Result<Vec<PathBuf>> {
        let module = self.module_file().unwrap_or_else(|| build::sources().join("kubernetes/go.mod"));
        let mut files = vec![module.with_extension("sum"), module];
        for entry in fs::read_dir(build::sources().join("kubernetes/oracle"))? {
            files.push(entry?.path());
        }
        files.sort();
        Ok(files)
    }

    fn digest(self) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        for file in self.inputs()? {
            hasher.write(&fs::read(file)?);
        }
        Ok(hasher.finish())
    }
}

/// Where a program of a release is, once it is built.
pub(super) fn place(program: Program) -> Option<PathBuf> {
    Some(cache_root()?.join("testenv").join(program.wanted()).join(program.name()))
}

/// A program of a release, if it was built. Only the name of an oracle says which release it is, so only an oracle may
/// be in the folder of [`super::ASSETS`].
pub(super) fn find_of_release(program: Program) -> Result<PathBuf, SkipReason> {
    let place = place(program).ok_or(SkipReason::NoCache)?;
    let is_named = matches!(program, Program::Oracle(_));
    let assets = std::env::var_os(super::ASSETS).filter(|_| is_named);
    let mut places = assets.map(|folder| Path::new(&folder).join(program.name())).into_iter().chain([place]);
    places.find(|path| is_executable(path)).ok_or(SkipReason::NotBuilt(program))
}

fn find_or_build(program: Program, tell: &mut dyn FnMut(Progress)) -> Result<PathBuf, SkipReason> {
    match find_of_release(program) {
        Err(SkipReason::NotBuilt(_)) if on_path("go").is_some() => {}
        found => return found,
    }
    build::of_release(program, tell).map_err(|error| SkipReason::Failed(program, format!("{error:#}")))?;
    find_of_release(program)
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.minor())
    }
}

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(text: &str) -> Result<Self, UnknownRelease> {
        let known = |release: &Self| text == release.minor() || text == release.version();
        Self::ALL.into_iter().find(known).ok_or_else(|| UnknownRelease(text.to_owned()))
    }
}

impl From<Release> for Program {
    fn from(release: Release) -> Self {
        Self::Oracle(release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_files_pin_the_releases_named_here() {
        for release in Release::ALL {
            let file = release.module_file().unwrap_or_else(|| build::sources().join("kubernetes/go.mod"));
            let pinned = fs::read_to_string(&file).unwrap();
            let version = release.version();
            assert!(pinned.contains(&format!("k8s.io/kubernetes {version}")), "{}", file.display());
            let staging = version.replace("v1.", "v0.");
            assert!(
                pinned.contains(&format!("k8s.io/kubelet => k8s.io/kubelet {staging}")),
                "{}",
                file.display()
            );
        }
    }

    #[test]
    fn names_differ_by_release_and_sources() {
        let names: Vec<_> = Release::ALL.map(Release::program_name).into();
        assert!(names.iter().all(|name| !name.ends_with("-00000000")), "{names:?}");
        assert!(names[2].starts_with("oracle-1.36-"), "{names:?}");
        let files = Release::V1_34.inputs().unwrap();
        for wanted in ["1.34/go.mod", "1.34/go.sum", "oracle/main.go", "oracle/empty.s"] {
            assert!(files.iter().any(|file| file.ends_with(wanted)), "{wanted} in {files:?}");
        }
    }

    #[test]
    fn a_release_has_two_spellings() {
        assert_eq!("1.37".parse(), Ok(Release::V1_37));
        assert_eq!("v1.37.2".parse(), Ok(Release::V1_37));
        assert_eq!("1.33".parse::<Release>(), Err(UnknownRelease("1.33".to_owned())));
    }
}
