//! Builds the programs of the rig from Go modules into the cache folder.
//!
//! In: the module files under `testenv/`, Go, and a function that takes the progress. Out: all programs in the
//! cache, each put there whole (written under another name, then renamed). Two callers at a time do not build
//! twice: the second waits for the first and finds its work done.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::oracle::{find_of_release, place};
use super::{Binaries, KUBERNETES_VERSION, Program, SkipReason, cache_dir, find, on_path};

/// What happens during [`ensure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another process is building; waiting for it.
    Waiting,
    /// A build begins; `done` of `total` are behind us.
    Building {
        /// The program being built.
        program: Program,
        /// Programs already built by this call.
        done: usize,
        /// Programs this call has to build.
        total: usize,
    },
    /// A Go package was compiled (most are taken from Go's own cache when it is warm).
    Compiled {
        /// Its import path.
        package: String,
    },
    /// A program is in the cache now.
    Built(Program),
}

/// The folder with the module files, in this repository.
#[must_use]
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv")
}

/// Finds the programs and builds those that are nowhere.
///
/// # Errors
/// When Go is needed and missing, or a build fails; the error says what to install, or ends with Go's own words.
pub fn ensure(tell: &mut dyn FnMut(Progress)) -> anyhow::Result<Binaries> {
    let missing = match find() {
        Ok(found) => return Ok(found),
        Err(SkipReason::Missing(missing)) => missing,
        Err(reason) => return Err(reason.into()),
    };
    if on_path("go").is_none() {
        let names: Vec<_> = missing.iter().map(|program| program.name()).collect();
        bail!(
            "no {} found, and no Go to build them with. Either install Go 1.26 or later (`go` on PATH; 1.21 or later \
             fetches the right one itself), or put binaries of Kubernetes {KUBERNETES_VERSION} and etcd {} into a \
             folder and name it in {}",
            names.join(", "),
            super::ETCD_VERSION,
            super::ASSETS
        );
    }
    let cache = cache_dir().context("neither XDG_CACHE_HOME nor HOME is set: no place for built programs")?;
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    let _lock = lock(&cache, tell)?;
    // The last holder of the lock may have built everything.
    let missing = match find() {
        Ok(found) => return Ok(found),
        Err(SkipReason::Missing(missing)) => missing,
        Err(reason) => return Err(reason.into()),
    };
    for (done, program) in missing.iter().copied().enumerate() {
        tell(Progress::Building { program, done, total: missing.len() });
        build(program, &cache, tell)?;
        tell(Progress::Built(program));
    }
    Ok(find()?)
}

/// Builds a program of a release, unless another process has meanwhile.
///
/// # Errors
/// When the cache cannot be written or the build fails.
pub(super) fn of_release(program: Program, tell: &mut dyn FnMut(Progress)) -> anyhow::Result<()> {
    let place =
        place(program).context("neither XDG_CACHE_HOME nor HOME is set: no place for built programs")?;
    let cache = place.parent().context("the cache has no folder")?;
    fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
    let _lock = lock(cache, tell)?;
    if find_of_release(program).is_err() {
        tell(Progress::Building { program, done: 0, total: 1 });
        build(program, cache, tell)?;
        tell(Progress::Built(program));
    }
    Ok(())
}

/// Holds the cache's lock file until dropped.
fn lock(cache: &Path, tell: &mut dyn FnMut(Progress)) -> anyhow::Result<File> {
    let path = cache.join(".lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    if file.try_lock().is_err() {
        tell(Progress::Waiting);
        file.lock().with_context(|| format!("locking {}", path.display()))?;
    }
    Ok(file)
}

fn build(program: Program, cache: &Path, tell: &mut dyn FnMut(Progress)) -> anyhow::Result<()> {
    let (module, package) = match program {
        Program::Etcd => ("etcd", "go.etcd.io/etcd/server/v3".to_owned()),
        // Of packages that the kubelet has, so that a second is enough behind it.
        Program::CriStreaming => ("kubernetes", "./cri-streaming".to_owned()),
        Program::SchedulerOracle => ("kubernetes", "./scheduler-oracle".to_owned()),
        Program::Oracle(_) => ("kubernetes", "./oracle".to_owned()),
        _ => ("kubernetes", format!("k8s.io/kubernetes/cmd/{program}")),
    };
    // Under the lock no other process writes this name; a leftover of a killed build is overwritten.
    let half = cache.join(format!(".{program}.part"));
    let mut go = Command::new("go")
        .args(["build", "-v", "-trimpath", "-ldflags", &link_flags(program)])
        .args(module_flags(program))
        .arg("-o")
        .arg(&half)
        .arg(package)
        .current_dir(sources().join(module))
        .env("CGO_ENABLED", "0")
        .env_remove("GOFLAGS")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("running go")?;
    let mut said = Vec::new();
    if let Some(err) = go.stderr.take() {
        for line in BufReader::new(err).lines().map_while(Result::ok) {
            // `-v` prints one import path a line; anything else is a message.
            if line.contains(' ') {
                said.push(line);
            } else {
                tell(Progress::Compiled { package: line });
            }
        }
    }
    let exit = go.wait().context("waiting for go")?;
    if !exit.success() {
        let tail = said[said.len().saturating_sub(20)..].join("\n");
        bail!("building {program} with Go failed ({exit}):\n{tail}");
    }
    put(&half, &cache.join(program.name()))
        .with_context(|| format!("putting {program} into {}", cache.display()))
}

/// Makes a finished file appear under its name at once and for good.
fn put(half: &Path, whole: &Path) -> io::Result<()> {
    File::open(half)?.sync_all()?;
    fs::rename(half, whole)
}

/// Kubernetes servers report this version; without the stamp they say v0.0.0 and clients refuse their skew.
fn link_flags(program: Program) -> String {
    match program {
        // etcd's version is a constant in its source.
        Program::Etcd => return "-s -w".to_owned(),
        Program::CriStreaming | Program::SchedulerOracle | Program::Oracle(_) => {
            return format!("-s -w -X main.version={}", program.wanted());
        }
        _ => {}
    }
    let version = program.wanted();
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let at = "-X k8s.io/component-base/version.";
    format!("-s -w {at}gitVersion={version} {at}gitMajor={major} {at}gitMinor={minor}")
}

/// A program of another release has other modules, and a tag by which Go takes other files of ours.
fn module_flags(program: Program) -> Vec<String> {
    let (Program::Oracle(release) | Program::KubeletOf(release)) = program else { return Vec::new() };
    let module = release.module_file();
    let flag = module.map(|file| format!("-modfile={}", file.display()));
    flag.into_iter().flat_map(|flag| [flag, format!("-tags={}", release.tag())]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::oracle::Release;
    use super::*;

    #[test]
    fn kubernetes_programs_carry_their_version() {
        let flags = link_flags(Program::Kubelet);
        for wanted in ["gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"] {
            assert!(flags.contains(&format!(".{wanted}")), "{flags}");
        }
        let older = link_flags(Program::KubeletOf(Release::V1_34));
        assert!(older.contains("gitVersion=v1.34.4") && older.contains("gitMinor=34"), "{older}");
        assert!(module_flags(Program::KubeletOf(Release::V1_34))[0].ends_with("oracle/1.34/go.mod"));
        assert!(module_flags(Program::KubeletOf(Release::V1_36)).is_empty());
        assert_eq!(link_flags(Program::Etcd), "-s -w");
        assert_eq!(link_flags(Program::CriStreaming), "-s -w -X main.version=v1.36.3");
        assert_eq!(link_flags(Program::Oracle(Release::V1_34)), "-s -w -X main.version=v1.34.4");
    }
}
