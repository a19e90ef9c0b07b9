use std::path::Path;

use api::goduration::GoDuration;
use runtime::delegated_auth::Lookup;
use runtime::tls;

use super::*;
use crate::args::{Delegation, Serving};

fn run(words: &str) -> Start {
    let words = words.split_whitespace().map(str::to_owned).collect();
    start(NAME, words, &|name| (name == "PFP_STATUS_DUMP").then(|| "/run/pfpstatus".to_owned()))
}

#[track_caller]
fn plan(words: &str) -> Plan {
    match run(words) {
        Start::Run(plan) => *plan,
        Start::End { text, code } => panic!("{words}: {code} {text}"),
    }
}

/// The arguments that the Go operator, the Go deployer, and kubeadm pass.
#[test]
fn the_peers_manifests_are_understood() {
    let operator = "--config=/etc/kubernetes/config.yaml -v=4 --tls-min-version=VersionTLS12 \
        --tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    let Plan { args, ignored } = plan(operator);
    assert_eq!((args.config.unwrap().to_str().unwrap(), args.verbosity), ("/etc/kubernetes/config.yaml", 4));
    assert_eq!(args.http_bind_address.to_string(), "0.0.0.0:10259");
    assert_eq!(args.pods_fingerprint_status_dir.unwrap().to_str().unwrap(), "/run/pfpstatus");
    assert_eq!((args.leader_elect, args.election, ignored), (None, ElectionFlags::default(), vec![]));
    let Serving::Secure { tls, delegation } = args.serving else { panic!() };
    assert_ne!(tls.policy, tls::Policy::default());
    assert_eq!((tls.clients, delegation.lookup), (Some(tls::ClientAuth::PerRequest), Lookup::Tolerant));
    assert_eq!(delegation.always_allow_paths, ["/healthz", "/readyz", "/livez"]);

    let deployer = plan("/bin/kube-scheduler --config=/etc/kubernetes/scheduler-config.yaml -v=4");
    assert_eq!(deployer.args.config.unwrap().to_str().unwrap(), "/etc/kubernetes/scheduler-config.yaml");
    assert_eq!(deployer.args.verbosity, 4);
    assert_eq!(plan("--config=x --tls-min-version= --tls-cipher-suites=").args.verbosity, 2);

    let kubeadm = plan(
        "--authentication-kubeconfig=/a --authorization-kubeconfig=/a --bind-address=127.0.0.1 --kubeconfig=/k \
         --leader-elect=true --leader-elect-lease-duration=30s --leader-elect-resource-name=x --secure-port=1234 \
         --feature-gates=A=true --logtostderr",
    );
    assert_eq!((kubeadm.ignored, kubeadm.args.gang_scheduling), (vec!["feature-gates"], false));
    let gates = plan("--feature-gates=GenericWorkload=true,GangScheduling=true");
    assert_eq!((gates.ignored, gates.args.gang_scheduling), (vec![], true));
    assert_eq!(kubeadm.args.http_bind_address.to_string(), "127.0.0.1:1234");
    assert_eq!(kubeadm.args.kubeconfig.unwrap().to_str().unwrap(), "/k");
    assert_eq!(kubeadm.args.leader_elect, Some(true));
    let election = kubeadm.args.election;
    assert_eq!(election.lease_duration, Some(GoDuration::from_secs(30)));
    assert_eq!((election.resource_name.as_deref(), election.resource_namespace), (Some("x"), None));
    assert_eq!(
        delegation_of(kubeadm.args.serving).authorization_kubeconfig.as_deref(),
        Some(Path::new("/a"))
    );
    assert!(matches!(plan("--secure-port=0").args.serving, Serving::Disabled));
}

fn delegation_of(serving: Serving) -> Delegation {
    let Serving::Secure { delegation, .. } = serving else { panic!() };
    *delegation
}

#[test]
fn flags_about_readers_are_read() {
    let read = |words: &str| delegation_of(plan(words).args.serving);
    assert_eq!(read("--authentication-skip-lookup").lookup, Lookup::Skipped);
    assert_eq!(read("--authentication-tolerate-lookup-failure=false").lookup, Lookup::Required);
    assert_eq!(read("--authorization-always-allow-paths=/a,/b*").always_allow_paths, ["/a", "/b*"]);
    let again = "--authorization-always-allow-paths=/a --authorization-always-allow-paths=/b,/c";
    assert_eq!(read(again).always_allow_paths, ["/a", "/b", "/c"]);
    let none: Vec<String> = Vec::new();
    assert_eq!(read("--authorization-always-allow-paths=").always_allow_paths, none);
    let remember = read("--authorization-webhook-cache-unauthorized-ttl=0s").remember;
    assert_eq!((remember.allowed.as_secs(), remember.denied.as_secs()), (10, 0));
    let proxy =
        read("--requestheader-client-ca-file=/ca --requestheader-group-headers=x-a,x-b").request_header;
    let proxy = proxy.unwrap();
    assert_eq!(proxy.headers.group, ["x-a", "x-b"]);
    assert_eq!(proxy.headers.username, ["x-remote-user"]);
    let Serving::Secure { tls, .. } = plan("--cert-dir=/certs").args.serving else { panic!() };
    assert_eq!(tls.certificate, Path::new("/certs/kube-scheduler.crt"));
}

#[test]
fn values_that_mean_the_same_are_accepted() {
    for words in [
        "--leader-elect-resource-lock=leases",
        "--emulated-version=kube=1.36",
        "--permit-port-sharing=false",
        "--master=",
    ] {
        assert!(plan(words).ignored.is_empty(), "{words}");
    }
}

#[test]
fn without_a_file_it_is_kube_scheduler() {
    let (file, settings) = plan("--kubeconfig=/k --leader-elect=false").args.load().unwrap();
    assert_eq!(
        settings.profiles.iter().map(|profile| &*profile.name).collect::<Vec<_>>(),
        ["default-scheduler"]
    );
    assert!(settings.profiles[0].numa.is_none());
    let election = &file.leader_election;
    assert_eq!((election.leader_elect, election.resource_name.as_str()), (false, "kube-scheduler"));
    assert_eq!(file.client_connection.kubeconfig, "/k");
    let wait = plan("--pod-max-in-unschedulable-pods-duration=1m").args.load().unwrap().1.max_wait_ms;
    assert_eq!((wait, settings.max_wait_ms), (60_000, 300_000));
}

#[test]
fn errors_are_one_line() {
    for (words, wanted) in [
        ("--no-such-flag=1", "unknown flag: --no-such-flag; --help lists the known flags"),
        ("--config", "flag needs an argument: -config"),
        ("--leader-elect=perhaps", "invalid boolean value \"perhaps\" for -leader-elect: parse error"),
        ("--leader-elect true", "unexpected argument \"true\": only flags are allowed"),
        ("--secure-port=70000", "--secure-port: 70000 is not allowed; it must be 0 to 65535"),
        ("--bind-address=here", "--bind-address: \"here\" is not allowed; it must be an IP address"),
        ("--tls-cert-file=/a", "--tls-cert-file and --tls-private-key-file: give both or none"),
        ("--master=https://a", "--master is not supported: name the API server in --kubeconfig"),
        ("--emulated-version=1.35", "--emulated-version: 1.35 is not supported; it must be 1.36"),
        (
            "--leader-elect-resource-lock=endpoints",
            "--leader-elect-resource-lock: the lock is always a lease; it must be leases",
        ),
        ("--logging-format=xml", "--logging-format: xml is not allowed; it must be text or json"),
    ] {
        let Start::End { text, code } = run(words) else { panic!("{words}") };
        assert_eq!((code, text), (1, format!("error: {wanted}\n")), "{words}");
    }
    let Start::End { text, code } = run("--tls-min-version=1.2") else { panic!() };
    assert!(code == 1 && text.contains("--tls-min-version") && text.contains("VersionTLS12"), "{text}");
}

#[test]
fn help_and_version_are_no_errors() {
    for (words, part) in
        [("--help", "-secure-port int"), ("-h", "Usage of kube-scheduler:"), ("--version", NAME)]
    {
        let Start::End { text, code } = run(words) else { panic!("{words}") };
        assert!(code == 0 && text.contains(part), "{words}: {text}");
    }
}

#[test]
fn every_flag_is_there_once() {
    let tables = [table::EFFECTIVE, table::SERVING, table::WITHOUT_EFFECT, table::REFUSED, KLOG];
    let mut names: Vec<&str> = tables.into_iter().flatten().map(|flag| flag.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}
