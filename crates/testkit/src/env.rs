//! Where the Kubernetes programs of the rig come from, and whether this machine can run the rig at all.
//!
//! In: environment variables, the user's cache folder, and (only when asked, [`build`]) Go. Out: paths of the
//! programs, or a reason that says what to install. Tests ask [`rig`]; it never builds anything, so that `cargo
//! test` stays quick.

pub mod build;
pub mod oracle;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context as _, bail};

use oracle::Release;

/// The Kubernetes release the rig runs; `testenv/kubernetes/go.mod` pins the same one.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// The etcd release the rig runs; `testenv/etcd/go.mod` pins the same one.
pub const ETCD_VERSION: &str = "v3.6.15";

/// Folder of ready programs that wins over everything else, as controller-runtime's `setup-envtest` uses it.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Set to anything but the empty text, a machine that cannot run the rig makes [`rig`] panic instead of letting
/// tests skip.
pub const REQUIRE: &str = "TESTKIT_REQUIRE_RIG";

/// Path of the `tholepin` binary under test, for [`tholepin`].
pub const THOLEPIN: &str = "TESTKIT_THOLEPIN";

/// A program of the rig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The API server's store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The stock scheduler.
    Scheduler,
    /// Deployments, DaemonSets, garbage collection and the like.
    ControllerManager,
    /// The real kubelet.
    Kubelet,
    /// What people type; the commands of the quick start are run with it.
    Kubectl,
    /// Serves `exec` and `port-forward` for the container runtime; our own, from `testenv/kubernetes/cri-streaming`.
    CriStreaming,
    /// Answers what the stock scheduler would; our own, from `testenv/kubernetes/scheduler-oracle`.
    SchedulerOracle,
    /// Answers what a kubelet of a release would; our own, from `testenv/kubernetes/oracle`.
    Oracle(Release),
    /// The kubelet of a release. That of the rig's own release is the same file as [`Program::Kubelet`].
    KubeletOf(Release),
}

/// The names of our own programs say which sources they were built from, so that other sources are other programs.
static CRI_STREAMING: LazyLock<String> = LazyLock::new(|| {
    name_by_sources("cri-streaming", &[include_bytes!("../../../testenv/kubernetes/cri-streaming/main.go")])
});

static SCHEDULER_ORACLE: LazyLock<String> = LazyLock::new(|| {
    let sources: &[&[u8]] = &[
        include_bytes!("../../../testenv/kubernetes/scheduler-oracle/cluster.go"),
        include_bytes!("../../../testenv/kubernetes/scheduler-oracle/cycle.go"),
        include_bytes!("../../../testenv/kubernetes/scheduler-oracle/devices.go"),
        include_bytes!("../../../testenv/kubernetes/scheduler-oracle/main.go"),
        include_bytes!("../../../testenv/kubernetes/scheduler-oracle/storage.go"),
    ];
    name_by_sources("scheduler-oracle", sources)
});

fn name_by_sources(program: &str, sources: &[&[u8]]) -> String {
    let mut hasher = DefaultHasher::new();
    sources.iter().for_each(|source| hasher.write(source));
    format!("{program}-{:08x}", hasher.finish() as u32)
}

/// Where a program was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the folder that [`ASSETS`] names.
    Assets,
    /// In the user's cache folder, where [`build`] puts what it builds.
    Cache,
}

/// A program that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProgram {
    /// The file.
    pub path: PathBuf,
    /// Where it was found.
    pub origin: Origin,
}

/// All programs of the rig.
#[derive(Clone, Debug)]
pub struct Binaries(BTreeMap<Program, FoundProgram>);

/// A machine that can run the rig.
#[derive(Clone, Debug)]
pub struct Rig {
    /// The Kubernetes programs.
    pub binaries: Binaries,
}

/// Why tests that need the rig cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Kubelets on synthetic machines need mounts, and those need root.
    NotRoot,
    /// A tool of util-linux is missing.
    NoTool(&'static str),
    /// Programs are neither in [`ASSETS`] nor in the cache.
    Missing(Vec<Program>),
    /// The place of the cache is unknown.
    NoCache,
    /// A program of a release is not in the cache, and there is no Go to build it with.
    NotBuilt(Program),
    /// A program of a release could not be built or started, with the reason.
    Failed(Program, String),
}

impl Program {
    /// All programs, in the order in which they are listed.
    pub const ALL: [Self; 9] = [
        Self::Etcd,
        Self::ApiServer,
        Self::Scheduler,
        Self::ControllerManager,
        Self::Kubelet,
        Self::Kubectl,
        Self::CriStreaming,
        Self::SchedulerOracle,
        Self::Oracle(Release::V1_36),
    ];

    /// The name of the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Scheduler => "kube-scheduler",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubelet | Self::KubeletOf(_) => "kubelet",
            Self::Kubectl => "kubectl",
            Self::CriStreaming => &CRI_STREAMING,
            Self::SchedulerOracle => &SCHEDULER_ORACLE,
            Self::Oracle(release) => release.program_name(),
        }
    }

    /// The release the rig wants.
    #[must_use]
    pub const fn wanted(self) -> &'static str {
        match self {
            Self::Etcd => ETCD_VERSION,
            Self::Oracle(release) | Self::KubeletOf(release) => release.version(),
            _ => KUBERNETES_VERSION,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Assets => ASSETS,
            Self::Cache => "cache",
        })
    }
}

impl FoundProgram {
    /// The release the program says it is, with a leading `v`.
    ///
    /// # Errors
    /// When it cannot be run or its answer has no version in it.
    pub fn version(&self) -> anyhow::Result<String> {
        let path = self.path.display();
        let is_kubectl = self.path.ends_with(Program::Kubectl.name());
        let words: &[&str] = if is_kubectl { &["version", "--client"] } else { &["--version"] };
        let out = Command::new(&self.path).args(words).output();
        let out = out.with_context(|| format!("running {path}"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        // "Kubernetes v1.36.3", "Client Version: v1.36.3", "etcd Version: 3.6.15" or "cri-streaming v1.36.3".
        let word = text.lines().next().and_then(|line| line.split_whitespace().last());
        match word {
            Some(word) if out.status.success() => Ok(format!("v{}", word.trim_start_matches('v'))),
            _ => bail!("{path} --version says no version: {}", text.trim()),
        }
    }
}

impl Binaries {
    /// Where a program is.
    #[must_use]
    pub fn get(&self, program: Program) -> &FoundProgram {
        // `search` makes the only values there are, and only complete ones.
        &self.0[&program]
    }

    /// The file of a program.
    #[must_use]
    pub fn path(&self, program: Program) -> &Path {
        &self.get(program).path
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str("not root: kubelets on synthetic machines need mounts; run as root"),
            Self::NoTool(tool) => write!(f, "no {tool} on PATH: install util-linux"),
            Self::Missing(programs) => {
                let names: Vec<_> = programs.iter().map(|program| program.name()).collect();
                write!(
                    f,
                    "no {} in {ASSETS} or the cache: run `cargo xtask testenv`, which builds them (needs Go)",
                    names.join(", ")
                )
            }
            Self::NoCache => {
                f.write_str("neither XDG_CACHE_HOME nor HOME is set: no place to look for programs")
            }
            Self::NotBuilt(program) => {
                let version = program.wanted();
                write!(f, "no {program} of Kubernetes {version} in the cache, and no Go to build it with")
            }
            Self::Failed(program, why) => write!(f, "no {program} of Kubernetes {}: {why}", program.wanted()),
        }
    }
}

impl std::error::Error for SkipReason {}

/// The rig, if this machine can run it. Otherwise says so on the real standard error (libtest's capture does
/// not swallow it), so that a green run never hides that it proved nothing:
///
/// ```no_run
/// let Ok(rig) = testkit::env::rig() else { return };
/// ```
///
/// # Errors
/// The reason to skip.
///
/// # Panics
/// With [`REQUIRE`] set, instead of letting the test skip: where it is set, rig tests have to run.
pub fn rig() -> Result<Rig, SkipReason> {
    skipped(check())
}

/// Says it when something cannot be had, or panics where it has to be.
#[expect(clippy::panic, reason = "only tests call this, and the panic is what the caller asked for")]
fn skipped<T>(found: Result<T, SkipReason>) -> Result<T, SkipReason> {
    if let Err(reason) = &found {
        if std::env::var_os(REQUIRE).is_some_and(|value| !value.is_empty()) {
            panic!("{REQUIRE} is set but the rig cannot run: {reason}");
        }
        tell_skipped(reason);
    }
    found
}

/// As [`rig`], for callers that have their own way to say it.
///
/// # Errors
/// The reason to skip.
pub fn check() -> Result<Rig, SkipReason> {
    if !rustix::process::geteuid().is_root() {
        return Err(SkipReason::NotRoot);
    }
    for tool in ["sh", "unshare", "setsid", "mount"] {
        if on_path(tool).is_none() {
            return Err(SkipReason::NoTool(tool));
        }
    }
    Ok(Rig { binaries: find()? })
}

/// Looks for all programs, each first in [`ASSETS`], then in the cache.
///
/// # Errors
/// [`SkipReason::Missing`] with what is nowhere.
pub fn find() -> Result<Binaries, SkipReason> {
    let assets = std::env::var_os(ASSETS).filter(|value| !value.is_empty()).map(PathBuf::from);
    search(assets.as_deref(), &cache_dir().ok_or(SkipReason::NoCache)?)
}

/// The folder of everything that tests keep: `tholepin` in `XDG_CACHE_HOME`, or in `~/.cache`.
#[must_use]
pub fn cache_root() -> Option<PathBuf> {
    // The XDG specification: a relative path counts as unset.
    let absolute = |key| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("tholepin"))
}

/// The folder of built programs, one per release: `testenv/<release>` in [`cache_root`].
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    Some(cache_root()?.join("testenv").join(KUBERNETES_VERSION))
}

/// The `tholepin` binary to test: what [`THOLEPIN`] names, or the one cargo built beside the running test.
#[must_use]
pub fn tholepin() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(THOLEPIN).filter(|value| !value.is_empty()) {
        return Some(PathBuf::from(path));
    }
    let me = std::env::current_exe().ok()?;
    // Tests run from target/<profile>/deps, programs from target/<profile>.
    me.ancestors().skip(1).take(2).map(|dir| dir.join("tholepin")).find(|path| path.is_file())
}

fn search(assets: Option<&Path>, cache: &Path) -> Result<Binaries, SkipReason> {
    let mut found = BTreeMap::new();
    let mut missing = Vec::new();
    for program in Program::ALL {
        let places = [(assets, Origin::Assets), (Some(cache), Origin::Cache)];
        let hit = places.into_iter().find_map(|(dir, origin)| {
            let path = dir?.join(program.name());
            is_executable(&path).then_some(FoundProgram { path, origin })
        });
        match hit {
            Some(hit) => drop(found.insert(program, hit)),
            None => missing.push(program),
        }
    }
    if missing.is_empty() { Ok(Binaries(found)) } else { Err(SkipReason::Missing(missing)) }
}

fn on_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(tool)).find(|file| is_executable(file))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn tell_skipped(reason: &SkipReason) {
    let mut text = String::new();
    let test = std::thread::current();
    let _ = write!(text, "SKIPPED {}: {reason}", test.name().unwrap_or("a rig test"));
    let mut err = std::io::stderr();
    let _ =
        if err.is_terminal() { writeln!(err, "\x1b[1;33m{text}\x1b[0m") } else { writeln!(err, "{text}") };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn put(dir: &Path, programs: &[Program], mode: u32) {
        for program in programs {
            let path = dir.join(program.name());
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    #[test]
    fn assets_win_and_what_they_lack_comes_from_the_cache() {
        let (assets, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(assets.path(), &[Program::Etcd, Program::ApiServer], 0o755);
        put(cache.path(), &Program::ALL, 0o755);
        let found = search(Some(assets.path()), cache.path()).unwrap();
        assert_eq!(found.get(Program::Etcd).origin, Origin::Assets);
        assert_eq!(found.path(Program::ApiServer), assets.path().join("kube-apiserver"));
        assert_eq!(found.get(Program::Kubelet).origin, Origin::Cache);
        let found = search(None, cache.path()).unwrap();
        assert_eq!(found.get(Program::Etcd).origin, Origin::Cache);
    }

    #[test]
    fn what_is_nowhere_or_not_executable_is_named() {
        let (assets, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(assets.path(), &[Program::Etcd, Program::ApiServer, Program::Scheduler], 0o755);
        put(cache.path(), &[Program::Kubelet], 0o644);
        let reason = search(Some(assets.path()), cache.path()).unwrap_err();
        let missing = [
            Program::ControllerManager,
            Program::Kubelet,
            Program::Kubectl,
            Program::CriStreaming,
            Program::SchedulerOracle,
            Program::Oracle(Release::V1_36),
        ];
        let missing = missing.to_vec();
        assert_eq!(reason, SkipReason::Missing(missing));
        let text = reason.to_string();
        assert!(text.contains("kube-controller-manager, kubelet, kubectl, cri-streaming-"), "{text}");
        assert!(text.contains("cargo xtask testenv"), "{text}");
    }

    #[test]
    fn module_files_pin_the_releases_named_here() {
        let root = build::sources();
        let kubernetes = fs::read_to_string(root.join("kubernetes/go.mod")).unwrap();
        assert!(kubernetes.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")));
        let etcd = fs::read_to_string(root.join("etcd/go.mod")).unwrap();
        assert!(etcd.contains(&format!("go.etcd.io/etcd/server/v3 {ETCD_VERSION}")));
    }
}
