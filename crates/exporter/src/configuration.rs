//! Reads the kubelet's settings: from its files or its `/configz`, with overrides by flags.
//!
//! In: the sources of [`Settings`](crate::Settings). Out: [`KubeletSettings`]. Never: a guess. A source that cannot be
//! read is an error, because a node with an unknown policy must not look like one that refuses nothing; unless flags
//! give both policy and scope.
//!
//! A kubelet reads its files only when it starts. So files that changed after it made its socket are not in effect: the
//! settings that were read before hold until it has restarted.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use node::kubelet::{Configuration, Files, RulesError};
use runtime::client::{self, Connection, KubeletEndpoint, KubeletTrust};
use topology::policy::{Policy, Rules, Scope};
use tracing::info;

use crate::settings::{KubeletConfigSource, PodResourcesAddress, Sources};

/// Deadline of one call to the kubelet.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer of `/configz` in bytes; a usual one has 5 KiB.
const LIMIT: usize = 1 << 20;

/// The kubelet's settings for alignment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletSettings {
    /// The rules to publish.
    pub rules: Rules,
    /// The whole configuration, if it could be read.
    pub configuration: Option<Configuration>,
}

/// Why the settings are unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, or the answer of the kubelet, is missing or invalid.
    #[error(
        "the kubelet's configuration is unknown (not needed if flags give topology manager policy and scope)"
    )]
    Rules(#[from] RulesError),
    /// A call to the kubelet's port failed.
    #[error("kubelet configuration from {url}: {reason}")]
    Configz {
        /// The URL.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The file or directory was removed where it is mounted from, so the mount shows what was there before.
    #[error("{} was replaced on the node, and this mount shows the old one", .0.display())]
    Replaced(PathBuf),
}

/// When the kubelet made its socket, and when its files changed last. Both as the kernel keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    started: SystemTime,
    changed: SystemTime,
}

/// Reads the configuration.
#[derive(Clone)]
pub struct Reader {
    at: KubeletConfigSource,
    policy: Option<Policy>,
    scope: Option<Scope>,
    kubelet: Option<kube::Client>,
    told: Option<Rules>,
    /// The kubelet's socket, whose age is the time since the kubelet started.
    socket: Option<PathBuf>,
    /// The settings that were read last.
    known: Option<KubeletSettings>,
    /// The times of the sources at that read, if known.
    read_at: Option<Times>,
    /// A change that waits for the kubelet's restart has been logged.
    waiting: bool,
}

impl Reader {
    /// A reader that has read nothing yet.
    #[must_use]
    pub fn new(sources: &Sources) -> Self {
        let Sources { policy, scope, .. } = *sources;
        let socket = match &sources.podresources {
            PodResourcesAddress::Socket(path) => Some(path.clone()),
            PodResourcesAddress::Folder(_) => None,
        };
        Self::of(sources.kubelet_config.clone(), policy, scope, socket)
    }

    fn of(
        at: KubeletConfigSource,
        policy: Option<Policy>,
        scope: Option<Scope>,
        socket: Option<PathBuf>,
    ) -> Self {
        Self {
            at,
            policy,
            scope,
            kubelet: None,
            told: None,
            socket,
            known: None,
            read_at: None,
            waiting: false,
        }
    }

    /// Reads the settings, if their sources may have changed.
    ///
    /// # Errors
    /// When they cannot be read or are invalid, and are needed.
    pub async fn read(&mut self) -> Result<KubeletSettings, Error> {
        let times = self.times();
        let changed = times.is_some_and(|times| times.changed > times.started);
        if changed && !std::mem::replace(&mut self.waiting, true) {
            info!("the kubelet's configuration has changed; it takes effect when the kubelet restarts");
        }
        self.waiting = changed;
        // Reading the same again would cost more than everything else at rest.
        let same = times.is_some() && times == self.read_at;
        if let Some(known) = self.known.as_ref().filter(|_| changed || same) {
            return Ok(known.clone());
        }
        if let Some(path) = self.replaced() {
            return Err(Error::Replaced(path));
        }
        let known = self.read_anew().await?;
        self.known = Some(known.clone());
        self.read_at = times;
        Ok(known)
    }

    /// `None` without a socket or a file.
    fn times(&self) -> Option<Times> {
        let KubeletConfigSource::File { path, drop_ins } = &self.at else { return None };
        let started = self.socket.as_ref()?.metadata().ok()?.modified().ok()?;
        let drop_ins = drop_ins.iter().flat_map(|dir| files_in(dir));
        let changed =
            std::iter::once(path.clone()).chain(drop_ins).filter_map(|path| changed_at(&path)).max()?;
        Some(Times { started, changed })
    }

    /// A source without a link: a container's mount keeps it after its replacement on the node.
    fn replaced(&self) -> Option<PathBuf> {
        let KubeletConfigSource::File { path, drop_ins } = &self.at else { return None };
        let unlinked = |path: &&PathBuf| path.metadata().is_ok_and(|found| found.nlink() == 0);
        [Some(path), drop_ins.as_ref()].into_iter().flatten().find(unlinked).cloned()
    }

    async fn read_anew(&mut self) -> Result<KubeletSettings, Error> {
        let read = match &self.at {
            KubeletConfigSource::File { path, drop_ins } => {
                let files = Files { file: path.clone(), drop_ins: drop_ins.clone() };
                Configuration::read(&files).map_err(Error::from)
            }
            KubeletConfigSource::Configz { url, token, trust } => {
                let (url, kubelet) = (url.clone(), (token.clone(), trust.clone()));
                self.configz(url, kubelet).await
            }
        };
        match read {
            Ok(configuration) => {
                let given = self.policy.is_some() && self.scope.is_some();
                let Rules { policy, scope, .. } = configuration.rules;
                let rules = Rules {
                    policy: self.policy.unwrap_or(policy),
                    scope: self.scope.unwrap_or(scope),
                    ..configuration.rules
                };
                self.tell(rules, if given { "given" } else { "detected" });
                Ok(KubeletSettings { rules, configuration: Some(configuration) })
            }
            Err(error) => {
                let (Some(policy), Some(scope)) = (self.policy, self.scope) else { return Err(error) };
                let rules = Rules { policy, scope, ..Rules::default() };
                if self.told != Some(rules) {
                    info!(
                        error = client::chain(&error),
                        "the policies of the CPU and memory managers are unknown"
                    );
                }
                self.tell(rules, "given");
                Ok(KubeletSettings { rules, configuration: None })
            }
        }
    }

    /// Logs the rules once, in the words of RTE, for which people search.
    fn tell(&mut self, rules: Rules, origin: &str) {
        if self.told.replace(rules) != Some(rules) {
            let Rules { policy, scope, .. } = rules;
            info!("using {origin} Topology Manager policy {:?} scope {:?}", policy.as_str(), scope.as_str());
        }
    }

    async fn configz(
        &mut self,
        url: String,
        (token, trust): (Option<PathBuf>, KubeletTrust),
    ) -> Result<Configuration, Error> {
        let failed = |reason: String| Error::Configz { url: url.clone(), reason };
        let (base, path) = split(&url).ok_or_else(|| failed("expected https://HOST:PORT/PATH".to_owned()))?;
        let client = match &self.kubelet {
            Some(client) => client,
            None => {
                let kubelet = KubeletEndpoint { url: base.to_owned(), token, trust };
                let agent = concat!("tholepin-exporter/", env!("CARGO_PKG_VERSION"));
                let connection = Connection::for_kubelet(&kubelet, agent);
                let client = connection.and_then(|connection| connection.client_with_timeout(DEADLINE));
                self.kubelet.insert(client.map_err(|error| failed(error.to_string()))?)
            }
        };
        let text = client::get_text(client, path, LIMIT).await;
        if text.is_err() {
            // A new client reads the authority again, which may have been replaced.
            self.kubelet = None;
        }
        let text = text.map_err(|error| failed(with_way_out(client::brief(&error))))?;
        Ok(Configuration::from_configz(&text, Path::new(&url))?)
    }
}

/// An error of a call; about certificates with the flags that change their check.
fn with_way_out(error: String) -> String {
    let ways = "--kubelet-config-ca names the authority of the kubelet, --kubelet-config-insecure leaves out the check";
    if error.contains("certificate") { format!("{error} ({ways})") } else { error }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("at", &self.at).finish_non_exhaustive()
    }
}

/// When a file was written or moved to its place: the later of both, which the kernel keeps.
fn changed_at(path: &Path) -> Option<SystemTime> {
    let metadata = path.metadata().ok()?;
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    let since = Duration::new(u64::try_from(metadata.ctime()).ok()?, nanoseconds);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// The directory and its direct entries. Deeper drop-ins are read at the kubelet's start like the others, but a change
/// of them is not noticed before.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).chain([dir.to_owned()]).collect()
}

/// The server and the path of a URL.
fn split(url: &str) -> Option<(&str, &str)> {
    let start = url.find("://")? + 3;
    let slash = start + url.get(start..)?.find('/')?;
    Some(url.split_at(slash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_counts_when_the_kubelet_has_started_anew() {
        let dir = tempfile::tempdir().unwrap();
        let [socket, path, drop_ins] =
            ["kubelet.sock", "config.yaml", "conf.d"].map(|name| dir.path().join(name));
        std::fs::create_dir(&drop_ins).unwrap();
        let at = KubeletConfigSource::File { path: path.clone(), drop_ins: Some(drop_ins.clone()) };
        let mut reader = Reader::of(at, None, None, Some(socket.clone()));
        let restart = || {
            // File times are as coarse as the kernel's tick.
            let newest = [&path, &drop_ins].into_iter().filter_map(|path| changed_at(path)).max().unwrap();
            loop {
                std::fs::write(&socket, "").unwrap();
                if socket.metadata().unwrap().modified().unwrap() > newest {
                    return;
                }
            }
        };
        let put = |path: &Path, text: &str| {
            let made = socket.metadata().unwrap().modified().unwrap();
            loop {
                std::fs::write(path, text).unwrap();
                if changed_at(path).unwrap() > made {
                    return;
                }
            }
        };
        let write = |policy: &str| put(&path, &format!("topologyManagerPolicy: {policy}"));
        std::fs::write(&path, "topologyManagerPolicy: restricted").unwrap();
        restart();
        assert_eq!(reader.read().await.unwrap().rules.policy, Policy::Restricted);
        for odd in ["best-effort", "nonsense"] {
            write(odd);
            assert_eq!(reader.read().await.unwrap().rules.policy, Policy::Restricted, "{odd}");
        }
        restart();
        assert!(reader.read().await.is_err());
        write("best-effort");
        restart();
        assert_eq!(reader.read().await.unwrap().rules.policy, Policy::BestEffort);
        let more = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ntopologyManagerPolicy: none";
        put(&drop_ins.join("1.conf"), more);
        assert_eq!(reader.read().await.unwrap().rules.policy, Policy::BestEffort);
        restart();
        assert_eq!(reader.read().await.unwrap().rules.policy, Policy::None);
        write("single-numa-node");
        let mut late = Reader { known: None, ..reader };
        assert_eq!(late.read().await.unwrap().rules.policy, Policy::None, "the drop-in has the last word");
    }

    /// What a container sees whose mount is the file alone: an open file, by its path in `/proc`.
    #[tokio::test]
    async fn a_replaced_file_counts_until_the_kubelet_has_started_anew() {
        let dir = tempfile::tempdir().unwrap();
        let [socket, path] = ["kubelet.sock", "config.yaml"].map(|name| dir.path().join(name));
        std::fs::write(&path, "topologyManagerPolicy: restricted").unwrap();
        let mounted = std::fs::File::open(&path).unwrap();
        let mount = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&mounted)));
        let restart = || {
            let newest = changed_at(&mount).unwrap();
            loop {
                std::fs::write(&socket, "").unwrap();
                if socket.metadata().unwrap().modified().unwrap() > newest {
                    return;
                }
            }
        };
        restart();
        let at = KubeletConfigSource::File { path: mount.clone(), drop_ins: None };
        let mut reader = Reader::of(at, None, None, Some(socket.clone()));
        assert_eq!(reader.read().await.unwrap().rules.policy, Policy::Restricted);
        let made = socket.metadata().unwrap().modified().unwrap();
        let next = dir.path().join("next");
        while next.metadata().is_err() || changed_at(&next).unwrap() <= made {
            std::fs::write(&next, "topologyManagerPolicy: none").unwrap();
        }
        std::fs::rename(&next, &path).unwrap();
        assert_eq!(reader.read().await.unwrap().rules.policy, Policy::Restricted, "not in effect yet");
        restart();
        let error = reader.read().await.unwrap_err();
        assert!(matches!(&error, Error::Replaced(path) if *path == mount), "{error}");
        assert!(error.to_string().ends_with("this mount shows the old one"), "{error}");
    }

    fn read(config: &str, policy: Option<Policy>, scope: Option<Scope>) -> Result<KubeletSettings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        if !config.is_empty() {
            std::fs::write(&path, format!("kind: KubeletConfiguration\n{config}")).unwrap();
        }
        let at = KubeletConfigSource::File { path, drop_ins: None };
        let mut reader = Reader::of(at, policy, scope, None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(reader.read()).map_err(|error| client::chain(&error))
    }

    #[test]
    fn flags_override_single_settings() {
        let config = "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\ncpuManagerPolicy: static";
        for (policy, scope, wanted) in [
            (None, None, (Policy::Restricted, Scope::Pod)),
            (Some(Policy::None), None, (Policy::None, Scope::Pod)),
            (None, Some(Scope::Container), (Policy::Restricted, Scope::Container)),
        ] {
            let known = read(config, policy, scope).unwrap();
            assert_eq!((known.rules.policy, known.rules.scope), wanted);
            assert_eq!(known.rules.cpu_manager, topology::policy::Manager::Static);
        }
    }

    #[test]
    fn without_a_file_both_are_needed() {
        let known = read("", Some(Policy::Restricted), Some(Scope::Pod)).unwrap();
        assert_eq!((known.rules.policy, known.configuration), (Policy::Restricted, None));
        let error = read("", Some(Policy::Restricted), None).unwrap_err();
        assert!(
            error.contains("config.yaml") && error.contains("flags give topology manager policy and scope"),
            "{error}"
        );
    }

    #[test]
    fn addresses_have_a_server_and_a_path() {
        assert_eq!(split("https://[::1]:10250/configz"), Some(("https://[::1]:10250", "/configz")));
        assert_eq!(split("https://n1:10250"), None);
        assert_eq!(split("/var/lib"), None);
    }
}
