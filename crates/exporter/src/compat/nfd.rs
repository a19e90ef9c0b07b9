//! nfd-topology-updater's command line: flags, one file, variables.
//!
//! In: arguments, [`Environment`]. Out: a [`Plan`], or how to exit. Never: a setting that is not configured.
//!
//! NFD's images look for the host's files below `/host-` (`/host-sys`, `/host-var/lib/kubelet`), and programs that
//! users build look below `/`. There the prefix is fixed when the program is built; here it is `/host-` when there is a
//! directory `/host-sys`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use runtime::client::KubeletTrust;
use runtime::goflag::{Flag, FlagSet, KLOG, Kind, Parsed, flag};
use topology::fingerprint::Method;

use super::extra::Extra;
use super::{
    Ending, Environment, NODE_NAME, Note, Peer, Plan, Problem, RELEASE, Start, flags, node_name, status_dump,
    verbosity,
};
use crate::settings::{
    Accounting, Intervals, KubeletConfigSource, Mode, OwnerKind, PodResourcesAddress, Publishing, Serving,
    Settings, Sources, StatusFiles,
};

const NFD: Peer = Peer::Nfd;

/// The flags. Defaults that depend on the machine are in the text.
const FLAGS: &[Flag] = &[
    flag("oneshot", Kind::Bool, "false", "end after the first object is written"),
    flag("no-publish", Kind::Bool, "false", "scan, but write no object"),
    flag(
        "kubeconfig",
        Kind::Text,
        "",
        "how to reach the API server; empty: KUBECONFIG, then the service account",
    ),
    flag("port", Kind::Int, "8080", "port of metrics and health; 0: none"),
    flag("sleep-interval", Kind::Duration, "1m0s", "time between scans without events; not above 0: never"),
    flag("watch-namespace", Kind::Text, "*", "account only for pods of this namespace; *: all"),
    flag(
        "kubelet-config-uri",
        Kind::Text,
        "",
        "the kubelet's configuration: https://host:port/configz or file:///path; empty: /configz of NODE_ADDRESS, port 10250",
    ),
    flag(
        "api-auth-token-file",
        Kind::Text,
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "token for the kubelet's https endpoint",
    ),
    flag(
        "kubelet-config-insecure",
        Kind::Bool,
        "false",
        "do not check the kubelet's certificate, as NFD: any server at its address gets the token",
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
        "the kubelet's root directory, watched for changes; given and empty: do not watch",
    ),
    flag("version", Kind::Bool, "false", "print the version and exit"),
];

/// Parses the command line.
pub(super) fn start(program: &str, arguments: Vec<String>, env: &Environment) -> Result<Start, Ending> {
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
    let mut planner = Planner { flags: &flags, env, notes: Vec::new(), problems: Vec::new() };
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
    env: &'a Environment,
    notes: Vec<Note>,
    problems: Vec<Problem>,
}

impl Planner<'_> {
    fn settings(&mut self) -> Option<Settings> {
        let node = node_name(self.env.variable("NODE_NAME"), self.env);
        if node.is_none() {
            let value = format!("{:?}", self.env.variable("NODE_NAME").unwrap_or(&self.env.host));
            self.problems.push(Problem::value("variable NODE_NAME", value, NODE_NAME));
        }
        let config = PathBuf::from(self.text("config"));
        let extra = Extra::read(&config, self.env, &mut self.notes, &mut self.problems).unwrap_or_default();
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
            intervals: Intervals {
                timer: self.flags.duration("sleep-interval").unwrap_or(MINUTE).to_std().unwrap_or_default(),
                release: RELEASE,
                min_gap: std::time::Duration::ZERO,
            },
            notify_file: None,
            publishing: (!self.bool("no-publish")).then_some(PUBLISHING),
            kubeconfig: Some(self.text("kubeconfig")).filter(|text| !text.is_empty()).map(PathBuf::from),
            readiness: None,
            status: StatusFiles { file: None, dump: status_dump(self.env) },
            serving,
            health: None,
            once: self.bool("oneshot"),
            dry_run: None,
            namespace: self.env.namespace(),
            node,
        })
    }

    fn sources(&mut self) -> Option<Sources> {
        let images = self.env.is_dir(Path::new("/host-sys"));
        let (sysfs, kubelet) =
            if images { ("/host-sys", "/host-var/lib/kubelet") } else { ("/sys", "/var/lib/kubelet") };
        let kubelet = PathBuf::from(kubelet);
        let podresources = match self.text("podresources-socket") {
            text if text.is_empty() => {
                Ok(PodResourcesAddress::Socket(kubelet.join("pod-resources/kubelet.sock")))
            }
            text => PodResourcesAddress::parse(&text),
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

    fn kubelet_config(&mut self) -> Option<KubeletConfigSource> {
        let url = match (self.text("kubelet-config-uri"), self.env.variable("NODE_ADDRESS")) {
            (uri, _) if !uri.is_empty() => uri,
            (_, Some(address)) if address.contains(':') && !address.starts_with('[') => {
                format!("https://[{address}]:10250/configz")
            }
            (_, Some(address)) => format!("https://{address}:10250/configz"),
            (_, None) => {
                self.problems.push(Problem::Missing {
                    what: "the kubelet's address is unknown".to_owned(),
                    remedy: "set the variable NODE_ADDRESS, or -kubelet-config-uri".to_owned(),
                });
                return None;
            }
        };
        let token = Some(self.text("api-auth-token-file")).filter(|text| !text.is_empty()).map(PathBuf::from);
        let unchecked = self.bool("kubelet-config-insecure");
        let trust = if unchecked { KubeletTrust::Unchecked } else { KubeletTrust::default() };
        let found = KubeletConfigSource::parse(&url, token, trust);
        if found.is_none() {
            let allowed = "https://host:port/configz or file:///path";
            self.problems.push(Problem::value("-kubelet-config-uri", format!("{url:?}"), allowed));
        }
        found
    }

    /// As Go's `:8080`: on all addresses, of both families if there are two.
    fn serving(&mut self) -> Option<Serving> {
        let port = self.flags.int("port").unwrap_or(8080);
        let Ok(port) = u16::try_from(port) else {
            self.problems.push(Problem::value("-port", port, "0 to 65535"));
            return None;
        };
        let two = self.env.exists(Path::new("/proc/net/if_inet6"));
        let any = if two { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        (port > 0).then_some(Serving { address: SocketAddr::new(any, port), tls: None })
    }

    fn bool(&self, name: &str) -> bool {
        self.flags.bool(name).unwrap_or(false)
    }

    /// The value of a flag, or its default.
    fn text(&self, name: &str) -> String {
        let default = || FLAGS.iter().find(|flag| flag.name == name).map_or("", |flag| flag.default);
        self.flags.text(name).unwrap_or_else(default).to_owned()
    }
}

/// As NFD writes. Server-side apply needs no read, which NFD's role does not allow.
const PUBLISHING: Publishing =
    Publishing { mode: Mode::Apply, resync: None, owner: OwnerKind::Namespace, timing: false };

const MINUTE: api::goduration::GoDuration = api::goduration::GoDuration::from_secs(60);

#[cfg(test)]
mod tests;
