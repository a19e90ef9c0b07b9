//! Converts the configuration to settings.
//!
//! In: a [`Config`], and whether files are mounted. Out: [`Settings`], or a [`Problem`] for each unusable value. Never:
//! text that has still to be parsed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::client::KubeletTrust;
use runtime::{http, tls};
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use super::config::{Config, Origin};
use super::table::Key;
use crate::compat::environment::clean;
use crate::compat::extra::of_node;
use crate::compat::{Environment, NODE_NAME, Note, Problem, RELEASE, node_name, status_dump};
use crate::settings::{
    Accounting, ContainerName, Intervals, KubeletConfigSource, Mode, OwnerKind, PodName, PodResourcesAddress,
    Publishing, Serving, Settings, Sources, StatusFiles,
};

/// A file that every kubelet keeps in its root directory, whatever its policies.
const ROOT_MARK: &str = "cpu_manager_state";

/// The service account's token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Where numaresources-operator mounts the values of KubeletConfigs; empty without any.
const OPERATORS_MOUNT: &str = "/etc/resource-topology-exporter";

/// The settings.
///
/// # Errors
/// A problem for each value that cannot be used.
pub(super) fn settings(
    config: &Config,
    env: &Environment,
    notes: &mut Vec<Note>,
) -> Result<Settings, Vec<Problem>> {
    let mut planner = Planner { config, env, notes, problems: Vec::new() };
    let settings = planner.settings();
    match settings {
        Some(settings) if planner.problems.is_empty() => Ok(settings),
        _ => Err(planner.problems),
    }
}

struct Planner<'a> {
    config: &'a Config,
    env: &'a Environment,
    notes: &'a mut Vec<Note>,
    problems: Vec<Problem>,
}

impl Planner<'_> {
    /// Converts all parts, so that all problems are found; `None` only where a required value is unknown.
    fn settings(&mut self) -> Option<Settings> {
        let config = self.config;
        let node = node_name(Some(&config.text(Key::Hostname)), self.env);
        if node.is_none() {
            self.wrong(Key::Hostname, NODE_NAME);
        }
        let sources = self.sources();
        let accounting = self.accounting(node.as_deref().unwrap_or_default());
        let (intervals, publishing) = (self.intervals(), self.publishing());
        let (readiness, serving) = (self.readiness(), self.serving());
        let health = http::address(&config.text(Key::HealthAddress));
        if health.is_err() {
            self.wrong(Key::HealthAddress, ":PORT, ADDRESS:PORT, or 0 for none");
        }
        let health = health.ok()?;
        let fingerprint_file = self.path(Key::FingerprintFile);
        Some(Settings {
            node: node?,
            sources: sources?,
            accounting,
            intervals,
            notify_file: self.path(Key::Notify).map(|path| clean(&path)),
            publishing: (!config.bool(Key::NoPublish)).then_some(publishing),
            kubeconfig: self.path(Key::Kubeconfig),
            readiness,
            status: StatusFiles { file: fingerprint_file, dump: status_dump(self.env) },
            serving,
            health,
            once: config.bool(Key::OneShot),
            dry_run: None,
            namespace: self.env.namespace(),
        })
    }

    fn sources(&mut self) -> Option<Sources> {
        let config = self.config;
        let podresources = PodResourcesAddress::parse(&config.text(Key::PodResources));
        if podresources.is_err() {
            self.wrong(
                Key::PodResources,
                "unix:///path or /path of a socket, or fake://dir of recorded answers",
            );
        }
        let sysfs = self.path(Key::Sysfs);
        if sysfs.is_none() {
            self.wrong(Key::Sysfs, "a directory");
        }
        let (podresources, sysfs) = (podresources.ok()?, sysfs?);
        let file = self.path(Key::KubeletConfig).unwrap_or_default();
        let kubelet_config = self.kubelet_config(&file);
        let (policy, scope) = self.rules(&file);
        Some(Sources {
            kubelet_root: self.kubelet_root(&podresources, &file),
            podresources,
            sysfs,
            kubelet_config: kubelet_config?,
            policy,
            scope,
        })
    }

    /// The kubelet's own answer where a flag asks for it, else its file.
    fn kubelet_config(&mut self, file: &Path) -> Option<KubeletConfigSource> {
        let uri = self.config.text(Key::KubeletUri);
        if uri.is_empty() {
            let drop_ins = self.path(Key::KubeletDropIns);
            return Some(KubeletConfigSource::File { path: file.to_owned(), drop_ins });
        }
        let trust = match self.path(Key::KubeletAuthority) {
            _ if self.config.bool(Key::KubeletInsecure) => KubeletTrust::Unchecked,
            Some(file) => KubeletTrust::File(file),
            None => KubeletTrust::default(),
        };
        let token = self.path(Key::KubeletToken).unwrap_or_else(|| PathBuf::from(TOKEN));
        let found = KubeletConfigSource::parse(&uri, Some(token), trust);
        if found.is_none() {
            self.wrong(Key::KubeletUri, "https://host:port/configz or file:///path");
        }
        found
    }

    /// Policy and scope, unless the kubelet's file or its answer decides.
    ///
    /// Numaresources-operator extracts them from the cluster's KubeletConfig into a file with a section `kubelet`, in
    /// which missing values mean the kubelet's defaults. It mounts no file of the kubelet. So where no file of the
    /// kubelet is configured and none is at the default path, such a section replaces it. Without a KubeletConfig there
    /// is no such file, and its optional mount is an empty directory: then the kubelets have their defaults too.
    /// Without that directory the settings are unknown, and none are assumed.
    fn rules(&mut self, file: &Path) -> (Option<Policy>, Option<Scope>) {
        let config = self.config;
        let policy = Policy::parse(&config.text(Key::Policy));
        let scope = Scope::parse(&config.text(Key::Scope));
        if (policy.is_some() && scope.is_some())
            || config.is_explicit(Key::KubeletConfig)
            || config.is_explicit(Key::KubeletUri)
            || self.env.exists(file)
        {
            return (policy, scope);
        }
        let mount = Path::new(OPERATORS_MOUNT);
        let empty = !self.env.exists(Path::new("/etc/rte"))
            && self.env.is_dir(mount)
            && !self.env.exists(&mount.join("config.yaml"));
        if config.extra.kubelet.is_some() || empty {
            if config.extra.kubelet.is_none() {
                self.warn(format!(
                    "{OPERATORS_MOUNT} is empty, so no KubeletConfig states policy and scope of the Topology \
                     Manager: using the kubelet's defaults, none and container"
                ));
            }
            return (policy.or(Some(Policy::default())), scope.or(Some(Scope::default())));
        }
        self.warn(format!(
            "no file {} and no section `kubelet` in a file of --config: nothing is published until policy and scope \
             are known",
            file.display()
        ));
        (policy, scope)
    }

    /// The kubelet's root directory, if it is mounted. That is the directory above the socket's if that one has its
    /// usual name, else the directory of the configuration file if it holds a kubelet's state.
    fn kubelet_root(&mut self, podresources: &PodResourcesAddress, file: &Path) -> Option<PathBuf> {
        let PodResourcesAddress::Socket(socket) = podresources else { return None };
        match self.config.text(Key::KubeletState).as_str() {
            "none" => return None,
            "" => {}
            dir => return Some(PathBuf::from(dir)),
        }
        let above = socket.parent().filter(|dir| dir.ends_with("pod-resources")).and_then(Path::parent);
        let beside = file.parent().filter(|dir| self.env.exists(&dir.join(ROOT_MARK)));
        let root = above.or(beside).map(Path::to_owned);
        if root.is_none() {
            self.warn(format!(
                "the kubelet's root directory is not mounted beside {} or {}: changes of its state are noticed late \
                 (--kubelet-state-dir)",
                socket.display(),
                file.display()
            ));
        }
        root
    }

    fn accounting(&mut self, node: &str) -> Accounting {
        let config = self.config;
        if config.bool(Key::ExcludeTerminal) {
            self.info("--exclude-terminal-pods: since 1.34 kubelets list no pods that have ended".to_owned());
        }
        let mut reference = None;
        if let [namespace, pod, container] = config.text(Key::Reference).split('/').collect::<Vec<_>>()[..] {
            let pod = PodName { namespace: namespace.to_owned(), name: pod.to_owned() };
            reference = Some(ContainerName { pod, container: container.to_owned() });
        }
        let method = Method::parse(&config.text(Key::FingerprintMethod));
        Accounting {
            namespace: Some(config.text(Key::Namespace)).filter(|name| !name.is_empty() && name != "*"),
            exclude: config.extra.resources.as_ref().map(|all| of_node(all, node)).unwrap_or_default(),
            exclude_pods: config.extra.pods.clone().unwrap_or_default(),
            reference,
            fingerprint: method.filter(|_| config.bool(Key::Fingerprint)),
            topology_policies: false,
        }
    }

    fn intervals(&mut self) -> Intervals {
        let config = self.config;
        let timer = config.duration(Key::Sleep).to_std();
        if timer.is_none() {
            self.wrong(Key::Sleep, "0 or more");
        }
        let unit = config.duration(Key::EventsUnit).to_std();
        if unit.is_none() {
            self.wrong(Key::EventsUnit, "0 or more");
        }
        // The built-in value is ignored: events are merged here instead of dropped.
        let asked = config.is_explicit(Key::MaxEvents) || config.is_explicit(Key::EventsUnit);
        let events = u32::try_from(config.int(Key::MaxEvents).clamp(0, u32::MAX.into())).unwrap_or(0);
        let least = unit.filter(|_| asked).and_then(|unit| unit.checked_div(events));
        Intervals {
            timer: timer.unwrap_or_default(),
            release: RELEASE,
            min_gap: least.unwrap_or(Duration::ZERO),
        }
    }

    fn publishing(&mut self) -> Publishing {
        let config = self.config;
        let resync = u32::try_from(config.int(Key::PatchResync).max(0)).unwrap_or(u32::MAX);
        Publishing {
            mode: if config.bool(Key::PatchMode) { Mode::Patch } else { Mode::Update },
            // The object is watched, so no change can be missed; an explicit wish is followed all the same.
            resync: Some(resync).filter(|resync| *resync > 0 && config.is_explicit(Key::PatchResync)),
            owner: if config.bool(Key::Owner) { OwnerKind::Node } else { OwnerKind::Leave },
            timing: config.bool(Key::Timing),
        }
    }

    fn readiness(&mut self) -> Option<PodName> {
        if !self.config.bool(Key::Readiness) {
            return None;
        }
        let variables = ["REFERENCE_NAMESPACE", "REFERENCE_POD_NAME"];
        let [namespace, name] = variables.map(|name| self.env.variable(name).map(str::to_owned));
        let (Some(namespace), Some(name)) = (namespace, name) else {
            self.problems.push(Problem::Missing {
                what: "the conditions need the name of the exporter's pod".to_owned(),
                remedy: format!("set the variables {}, or --podreadiness=false", variables.join(" and ")),
            });
            return None;
        };
        Some(PodName { namespace, name })
    }

    fn serving(&mut self) -> Option<Serving> {
        let config = self.config;
        let mode = config.text(Key::MetricsMode);
        if mode == "disabled" {
            return None;
        }
        let port = u16::try_from(config.int(Key::MetricsPort)).ok().filter(|port| *port > 0);
        if port.is_none() {
            self.wrong(Key::MetricsPort, "1 to 65535");
        }
        let address = match config.text(Key::MetricsAddress).trim_matches(['[', ']']) {
            "" => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            text => text.parse().ok(),
        };
        if address.is_none() {
            self.wrong(Key::MetricsAddress, "an IP address");
        }
        let tls = if mode == "httptls" { Some(self.tls()?) } else { None };
        Some(Serving { address: SocketAddr::new(address?, port?), tls })
    }

    fn tls(&mut self) -> Option<tls::Settings> {
        let config = self.config;
        let dir = PathBuf::from(config.text(Key::CertsDir));
        let (certificate, key) = (config.text(Key::CertFile), config.text(Key::CertKeyFile));
        // RTE's own manifests mount the secret one level deeper than RTE looks.
        let deeper = dir.join("tls");
        let pair = |dir: &Path| self.env.exists(&dir.join(&certificate)) && self.env.exists(&dir.join(&key));
        let at = if !pair(&dir) && pair(&deeper) { deeper } else { dir.clone() };
        let clients = config.bool(Key::ClientAuth).then(|| {
            let authorities = [dir.join("ca.crt"), dir.join("ca/ca.crt")];
            let there = authorities.into_iter().find(|file| self.env.exists(file));
            there.map_or(tls::ClientAuth::System, tls::ClientAuth::File)
        });
        let policy = tls::Policy::parse(&config.text(Key::TlsMinVersion), &config.text(Key::TlsCipherSuites));
        match policy {
            Ok(policy) => {
                Some(tls::Settings { certificate: at.join(certificate), key: at.join(key), clients, policy })
            }
            Err(error) => {
                let keys = [Key::TlsMinVersion, Key::TlsCipherSuites].map(|key| config.origin(key));
                let at =
                    keys.into_iter().find(|origin| *origin != Origin::Default).unwrap_or(Origin::Default);
                self.problems.push(Problem::File { file: at.to_string(), reason: error.to_string() });
                None
            }
        }
    }

    fn path(&self, key: Key) -> Option<PathBuf> {
        Some(self.config.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    fn wrong(&mut self, key: Key, allowed: &str) {
        self.problems.push(self.config.problem(key, allowed));
    }

    fn warn(&mut self, text: String) {
        self.notes.push(Note::Warning(text));
    }

    fn info(&mut self, text: String) {
        self.notes.push(Note::Info(text));
    }
}
