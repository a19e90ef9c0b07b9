//! nfd-topology-updater's command line: flags, one file, variables.
//!
//! In: arguments, [`Surroundings`]. Out: a [`Plan`], or how to end. Never: more than is configured.
//!
//! NFD's images look for the host's files below `/host-` (`/host-sys`, `/host-var/lib/kubelet`), programs that people build below `/`:
//! there it is fixed when the program is built, here it is `/host-` when there is a directory `/host-sys`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use runtime::goflag::{Flag, FlagSet, KLOG, Kind, Parsed, flag};
use topology::fingerprint::Method;

use super::extra::Extra;
use super::{
    Dialect, Ending, NODE_NAME, Note, Plan, Problem, RELEASE, Start, Surroundings, flags, node_name,
    status_dump, verbosity,
};
use crate::settings::{
    Accounting, Intervals, KubeletConfigAt, Mode, OwnerKind, PodResourcesAt, Publishing, Serving, Settings,
    Sources, StatusFiles,
};

const NFD: Dialect = Dialect::Nfd;

/// The flags. Where the default depends on the machine it is said in the text.
const FLAGS: &[Flag] = &[
    flag("oneshot", Kind::Bool, "false", "end after the first object is written"),
    flag("no-publish", Kind::Bool, "false", "look, but write no object"),
    flag(
        "kubeconfig",
        Kind::Text,
        "",
        "how to reach the API server; empty: KUBECONFIG, then the service account",
    ),
    flag("port", Kind::Int, "8080", "port of metrics and health; 0: none"),
    flag(
        "sleep-interval",
        Kind::Duration,
        "1m0s",
        "time between looks when nothing happens; not above 0: never",
    ),
    flag("watch-namespace", Kind::Text, "*", "account only for pods of this namespace; *: all"),
    flag(
        "kubelet-config-uri",
        Kind::Text,
        "",
        "the kubelet's configuration: https://host:port/configz or file:///path; empty: https://${NODE_ADDRESS}:10250/configz",
    ),
    flag(
        "api-auth-token-file",
        Kind::Text,
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "token for the kubelet's https endpoint",
    ),
    flag(
        "podresources-socket",
        Kind::Text,
        "",
        "the kubelet's podresources socket; empty: pod-resources/kubelet.sock in the kubelet's directory",
    ),
    flag(
        "config",
        Kind::Text,
        "/etc/kubernetes/node-feature-discovery/nfd-topology-updater.conf",
        "file with excludeList",
    ),
    flag("pods-fingerprint", Kind::Bool, "true", "publish the fingerprint of the pods"),
    flag(
        "kubelet-state-dir",
        Kind::Text,
        "",
        "the kubelet's root directory, to hear of changes; given and empty: do not watch",
    ),
    flag("version", Kind::Bool, "false", "print the version and exit"),
];

/// Understands the command line.
pub(super) fn start(program: &str, arguments: Vec<String>, around: &Surroundings) -> Result<Start, Ending> {
    let set = FlagSet { program, flags: &[FLAGS, KLOG] };
    let usage = set.usage();
    let flags = flags(set, arguments)?;
    if flags.bool("version") == Some(true) {
        return Err(Ending { stdout: NFD.version(), ..Ending::default() });
    }
    if !flags.rest.is_empty() {
        let problem = Problem::Arguments(flags.rest, "none are allowed");
        return Err(Ending { stderr: format!("error: {problem}\n{usage}"), code: 2, ..Ending::default() });
    }
    let mut planner = Planner { flags: &flags, around, notes: Vec::new(), problems: Vec::new() };
    let settings = planner.settings();
    let Planner { notes, problems, .. } = planner;
    match settings {
        Some(settings) if problems.is_empty() => {
            let verbosity = verbosity(flags.int("v").unwrap_or(0));
            Ok(Start::Run(Box::new(Plan { settings, verbosity, stdout: String::new(), notes })))
        }
        _ => Err(NFD.unusable(&problems)),
    }
}

struct Planner<'a> {
    flags: &'a Parsed,
    around: &'a Surroundings,
    notes: Vec<Note>,
    problems: Vec<Problem>,
}

impl Planner<'_> {
    fn settings(&mut self) -> Option<Settings> {
        let node = node_name(self.around.variable("NODE_NAME"), self.around);
        if node.is_none() {
            let value = format!("{:?}", self.around.variable("NODE_NAME").unwrap_or(&self.around.host));
            self.problems.push(Problem::value("variable NODE_NAME", value, NODE_NAME));
        }
        let config = PathBuf::from(self.text("config"));
        let extra =
            Extra::read(&config, self.around, &mut self.notes, &mut self.problems).unwrap_or_default();
        let (sources, serving) = (self.sources(), self.serving());
        let namespace = self.text("watch-namespace");
        let node = node?;
        Some(Settings {
            sources: sources?,
            accounting: Accounting {
                namespace: Some(namespace).filter(|name| !name.is_empty() && name != "*"),
                exclude: extra.resources_of(&node),
                exclude_pods: extra.pods.unwrap_or_default(),
                reference: None,
                fingerprint: self.flags.bool("pods-fingerprint").unwrap_or(true).then_some(Method::All),
                topology_policies: true,
            },
            pace: Intervals {
                timer: self.flags.duration("sleep-interval").unwrap_or(MINUTE).to_std().unwrap_or_default(),
                release: RELEASE,
                least: std::time::Duration::ZERO,
            },
            notify_file: None,
            publishing: (!self.bool("no-publish")).then_some(PUBLISHING),
            kubeconfig: Some(self.text("kubeconfig")).filter(|text| !text.is_empty()).map(PathBuf::from),
            readiness: None,
            status: StatusFiles { file: None, dump: status_dump(self.around) },
            serving,
            once: self.bool("oneshot"),
            dry_run: None,
            namespace: self.around.namespace(),
            node,
        })
    }

    fn sources(&mut self) -> Option<Sources> {
        let images = self.around.is_dir(Path::new("/host-sys"));
        let (sysfs, kubelet) =
            if images { ("/host-sys", "/host-var/lib/kubelet") } else { ("/sys", "/var/lib/kubelet") };
        let kubelet = PathBuf::from(kubelet);
        let podresources = match self.text("podresources-socket") {
            text if text.is_empty() => Ok(PodResourcesAt::Socket(kubelet.join("pod-resources/kubelet.sock"))),
            text => PodResourcesAt::parse(&text),
        };
        if let Err(error) = &podresources {
            self.problems
                .push(Problem::File { file: "-podresources-socket".to_owned(), reason: error.to_string() });
        }
        let kubelet_root = match self.flags.text("kubelet-state-dir") {
            None => Some(kubelet),
            Some(dir) => Some(PathBuf::from(dir)).filter(|dir| !dir.as_os_str().is_empty()),
        };
        Some(Sources {
            kubelet_config: self.kubelet_config()?,
            podresources: podresources.ok()?,
            sysfs: PathBuf::from(sysfs),
            kubelet_root,
            policy: None,
            scope: None,
        })
    }

    fn kubelet_config(&mut self) -> Option<KubeletConfigAt> {
        let url = match (self.text("kubelet-config-uri"), self.around.variable("NODE_ADDRESS")) {
            (uri, _) if !uri.is_empty() => uri,
            (_, Some(address)) if address.contains(':') && !address.starts_with('[') => {
                format!("https://[{address}]:10250/configz")
            }
            (_, Some(address)) => format!("https://{address}:10250/configz"),
            (_, None) => {
                self.problems.push(Problem::Missing {
                    what: "the kubelet's address is not known".to_owned(),
                    remedy: "set the variable NODE_ADDRESS, or -kubelet-config-uri".to_owned(),
                });
                return None;
            }
        };
        let token = Some(self.text("api-auth-token-file")).filter(|text| !text.is_empty()).map(PathBuf::from);
        let found = KubeletConfigAt::parse(&url, token, None);
        if found.is_none() {
            let allowed = "https://host:port/configz or file:///path";
            self.problems.push(Problem::value("-kubelet-config-uri", format!("{url:?}"), allowed));
        }
        found
    }

    /// Always, on all addresses, as Go's `:8080` means it: of both families, if there is a second one.
    fn serving(&mut self) -> Option<Serving> {
        let port = self.flags.int("port").unwrap_or(8080);
        let Ok(port) = u16::try_from(port) else {
            self.problems.push(Problem::value("-port", port, "0 to 65535"));
            return None;
        };
        let two = self.around.exists(Path::new("/proc/net/if_inet6"));
        let any = if two { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        (port > 0).then_some(Serving { address: SocketAddr::new(any, port), tls: None })
    }

    fn bool(&self, name: &str) -> bool {
        self.flags.bool(name).unwrap_or(false)
    }

    /// As given, else the default.
    fn text(&self, name: &str) -> String {
        let default = || FLAGS.iter().find(|flag| flag.name == name).map_or("", |flag| flag.default);
        self.flags.text(name).unwrap_or_else(default).to_owned()
    }
}

/// As NFD writes. It has to read nothing, which its role does not allow.
const PUBLISHING: Publishing =
    Publishing { mode: Mode::Apply, resync: None, owner: OwnerKind::Namespace, timing: false };

const MINUTE: api::goduration::GoDuration = api::goduration::GoDuration::from_secs(60);

#[cfg(test)]
mod tests;
