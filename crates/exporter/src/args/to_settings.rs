//! Converts the exporter's own flags to settings.
//!
//! In: [`Args`], the file of `--config`. Out: [`Settings`], or a [`Problem`] for each unusable value. Never: text that
//! has still to be parsed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::client::KubeletTrust;
use runtime::tls;
use topology::policy::{Policy, Scope};

use super::{Args, Node, Object, Scanning};
use crate::compat::extra::Extra;
use crate::compat::{Environment, NODE_NAME, Note, Problem, node_name};
use crate::settings::{
    Accounting, Intervals, KubeletConfigSource, OwnerKind, Publishing, Serving, Settings, Sources,
    StatusFiles,
};

/// The settings, and notes for the log.
pub(super) fn settings(args: Args, env: &Environment) -> Result<(Settings, Vec<Note>), Vec<Problem>> {
    let (mut notes, mut problems) = (Vec::new(), Vec::new());
    let node = name(&args.node, env, &mut problems);
    let extra = extra(args.accounting.config.as_deref(), env, &mut notes, &mut problems);
    let serving = serving(&args, &mut problems);
    let health = args.serving.health_probe_bind_address;
    let metrics = ("--metrics-port", serving.as_ref().map(|serving| serving.address));
    if let Err(text) = runtime::http::distinct(metrics, ("--health-probe-bind-address", health)) {
        problems.push(Problem::Ports(text));
    }
    let sources = sources(args.node, &extra, &mut problems);
    let node = node.unwrap_or_default();
    let (status, accounting) = accounting(args.accounting, args.object.topology_policies, extra, &node);
    let intervals = intervals(&args.scanning);
    let settings = sources.filter(|_| problems.is_empty()).map(|sources| Settings {
        node,
        sources,
        accounting,
        intervals,
        notify_file: args.scanning.notify_file,
        publishing: publishing(&args.object),
        kubeconfig: args.object.kubeconfig,
        readiness: args.object.readiness_conditions,
        status,
        serving,
        health,
        once: args.scanning.oneshot,
        dry_run: args.object.dry_run.then_some(args.object.output),
        namespace: args.object.namespace.or_else(|| env.namespace()),
    });
    settings.map(|settings| (settings, notes)).ok_or(problems)
}

/// The name and the sources of a node alone.
pub(super) fn of_node(node: Node, env: &Environment) -> Result<(String, Sources), Vec<Problem>> {
    let mut problems = Vec::new();
    let name = name(&node, env, &mut problems);
    let sources = sources(node, &Extra::default(), &mut problems);
    name.zip(sources).filter(|_| problems.is_empty()).ok_or(problems)
}

fn name(node: &Node, env: &Environment, problems: &mut Vec<Problem>) -> Option<String> {
    let name = node_name(node.hostname.as_deref(), env);
    if name.is_none() {
        let name = node.hostname.as_deref().unwrap_or(&env.host);
        problems.push(Problem::value("--hostname", format!("{name:?}"), NODE_NAME));
    }
    name
}

/// Reads the file of `--config`, which must exist.
fn extra(
    path: Option<&Path>,
    env: &Environment,
    notes: &mut Vec<Note>,
    problems: &mut Vec<Problem>,
) -> Extra {
    let Some(path) = path else { return Extra::default() };
    if !env.exists(path) {
        let reason = "does not exist (--config)".to_owned();
        problems.push(Problem::File { file: path.display().to_string(), reason });
        return Extra::default();
    }
    Extra::read(path, env, notes, problems).unwrap_or_default()
}

fn sources(node: Node, extra: &Extra, problems: &mut Vec<Problem>) -> Option<Sources> {
    let nonempty = |path: PathBuf| Some(path).filter(|path| !path.as_os_str().is_empty());
    let kubelet = extra.kubelet.clone().unwrap_or_default();
    let mut distilled = |text: &str, name: &str, known: bool, allowed: &str| {
        if !text.is_empty() && !known {
            problems.push(Problem::value(format!("--config: kubelet.{name}"), format!("{text:?}"), allowed));
        }
    };
    let (policy, scope) = (Policy::parse(&kubelet.policy), Scope::parse(&kubelet.scope));
    let policies = "none, best-effort, restricted, single-numa-node";
    distilled(&kubelet.policy, "topologyManagerPolicy", policy.is_some(), policies);
    distilled(&kubelet.scope, "topologyManagerScope", scope.is_some(), "container, pod");
    let kubelet_config = match node.kubelet_config_uri {
        None => Some(KubeletConfigSource::File {
            path: node.kubelet_config_file,
            drop_ins: node.kubelet_config_dir,
        }),
        Some(uri) => {
            let trust = match node.kubelet_config_ca {
                _ if node.kubelet_config_insecure => KubeletTrust::Unchecked,
                Some(file) => KubeletTrust::File(file),
                None => KubeletTrust::default(),
            };
            let found = KubeletConfigSource::parse(&uri, nonempty(node.kubelet_config_token), trust);
            if found.is_none() {
                let allowed = "https://HOST:PORT/configz or file:///PATH";
                problems.push(Problem::value("--kubelet-config-uri", format!("{uri:?}"), allowed));
            }
            found
        }
    };
    Some(Sources {
        podresources: node.podresources_socket,
        sysfs: node.sysfs,
        kubelet_root: nonempty(node.kubelet_state_dir),
        kubelet_config: kubelet_config?,
        policy: node.topology_manager_policy.or(policy),
        scope: node.topology_manager_scope.or(scope),
    })
}

fn accounting(
    args: super::Accounting,
    topology_policies: bool,
    extra: Extra,
    node: &str,
) -> (StatusFiles, Accounting) {
    let mut exclude = extra.resources_of(node);
    exclude.extend(args.exclude_resource);
    let mut exclude_pods = extra.pods.unwrap_or_default();
    exclude_pods.extend(args.exclude_pods);
    let nonempty = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
    let status = StatusFiles {
        file: nonempty(args.pods_fingerprint_status_file),
        dump: nonempty(args.pods_fingerprint_status_dir),
    };
    let accounting = Accounting {
        namespace: args.watch_namespace.filter(|name| !name.is_empty() && name != "*"),
        exclude,
        exclude_pods,
        reference: args.reference_container,
        fingerprint: args.pods_fingerprint.then_some(args.pods_fingerprint_method),
        topology_policies,
    };
    (status, accounting)
}

fn intervals(scanning: &Scanning) -> Intervals {
    let least = Duration::from_secs(1).checked_div(scanning.max_events_per_second);
    Intervals {
        timer: scanning.sleep_interval,
        release: scanning.release_interval,
        min_gap: least.unwrap_or(Duration::ZERO),
    }
}

fn publishing(object: &Object) -> Option<Publishing> {
    let unowned = if object.add_nrt_owner { OwnerKind::Node } else { OwnerKind::Leave };
    let publishing = Publishing {
        mode: object.write_mode,
        resync: Some(object.write_resync).filter(|writes| *writes > 0),
        owner: object.owner.unwrap_or(unowned),
        timing: object.expose_timing,
    };
    (!object.no_publish && !object.dry_run).then_some(publishing)
}

/// The address of metrics and health, if they are served.
fn serving(args: &Args, problems: &mut Vec<Problem>) -> Option<Serving> {
    let serving = &args.serving;
    let port = serving.metrics_port.unwrap_or(if args.object.dry_run { 0 } else { 2112 });
    let address = SocketAddr::new(serving.metrics_ip, port);
    let policy = tls::Policy::parse(&serving.metrics_tls_min_version, &serving.metrics_tls_cipher_suites);
    let policy = policy
        .map_err(|error| {
            let file = "--metrics-tls-min-version, --metrics-tls-cipher-suites".to_owned();
            problems.push(Problem::File { file, reason: error.to_string() });
        })
        .ok()?;
    let pair = serving.metrics_tls_cert.clone().zip(serving.metrics_tls_key.clone());
    let tls = pair.map(|(certificate, key)| tls::Settings {
        certificate,
        key,
        clients: serving.metrics_tls_client_ca.clone().map(tls::ClientAuth::File),
        policy,
    });
    (port != 0).then_some(Serving { address, tls })
}
