use clap::Parser;
use topology::policy::{Policy, Scope};

use super::*;
use crate::options::{Distribution, Kubelet, KubeletCertificate, KubeletConfig};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: InstallFlags,
}

fn flags(words: &str) -> Result<InstallFlags, String> {
    let words = std::iter::once("x").chain(words.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.flags).map_err(|error| error.to_string())
}

fn options(words: &str) -> Options {
    flags(words).unwrap().options(&|_| None).unwrap()
}

#[test]
fn without_flags_our_own_programs_are_installed() {
    assert_eq!(options(""), Options::default());
}

#[test]
fn the_peers_programs_have_the_peers_defaults() {
    let peers = Options::peers();
    let theirs = options("--updater-type RTE --sched-type plugin --pull-policy always");
    assert_eq!(theirs, peers);
    assert_eq!(options("--updater-type nfd --updater-verbose 3").updater.verbosity, 3);
}

#[test]
fn every_flag_sets_its_option() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "informerMode: Shared\ntype: MostAllocated\n").unwrap();
    let file = file.path().display();
    let words = format!(
        "-P openshift:4.18 --monitoring --updater-type rte --sched-type plugin -n n --updater-namespace a --updater-name b --updater-sync-period 1m --updater-verbose 7 \
         --updater-pfp-enable=false --updater-config-file {file} --updater-node-selector x=y,z= --updater-toleration k=v:NoExecute \
         --updater-priority-class c --metrics-port 9 --admission-policy=false --updater-notif-enable \
         --updater-cri-hooks-enable --updater-custom-selinux-policy=false --updater-scc v1 --selinux-type t \
         --machine-config-label m=n --kubelet-profile microk8s --kubelet-config configz:10255 --kubelet-root-mount \
         --sched-namespace d -R 3 --sched-profile-name e --sched-ctrlplane-affinity=false --sched-leader-elect-resource f/g \
         --sched-verbose 8 --sched-node-selector h=i --sched-toleration all --sched-priority-class j --disruption-budget=false \
         --sched-preemption-mode Enabled --sched-resync-period 500ms --sched-informer-mode Dedicated \
         --sched-cache-params-config-file {file} --sched-scoring-strat-config-file {file} --network-policies=false \
         --runbook-url u --sched-delete-rejected-pods --critical-quota --api-server-port 1,2 --api-server-cidr 192.0.2.1/32 --arch amd64 --image k --rte-image l --nfd-image o --sched-image p --controller-image q \
         --pause-image r --pull-policy always --pull-secret s"
    );
    let set = options(&words);
    // Every field differs from its default, so no flag was forgotten.
    let lines = |options: &Options| -> Vec<String> {
        format!("{options:#?}").lines().filter(|line| line.starts_with("    ")).map(str::to_owned).collect()
    };
    let defaults = lines(&Options::default());
    let field = |line: &String| line.contains(": ") && !line.ends_with(['{', '(', '[']);
    let same: Vec<String> = lines(&set)
        .into_iter()
        .filter(|line| field(line) && defaults.contains(line))
        .map(|line| line.trim().to_owned())
        .collect();
    // Only the cluster knows these.
    assert_eq!(same, ["platform: Kubernetes,", "version: None,"], "{set:#?}");
    assert_eq!(flags(&words).unwrap().platform, Some("openshift:4.18".parse().unwrap()));
}

#[test]
fn kubelet_flags_override_the_profile() {
    let kubelet = |words: &str| options(words).updater.kubelet;
    let file = |root: &str, path: &str| {
        let config = KubeletConfig::File { path: path.to_owned(), drop_ins: None };
        Some(Kubelet { root: root.to_owned(), config, certificate: KubeletCertificate::Cluster })
    };
    assert_eq!(kubelet(""), None);
    assert_eq!(kubelet("--kubelet-profile kind"), Some(Distribution::Kind.kubelet()));
    assert_eq!(kubelet("--kubelet-root /k/"), file("/k", "/k/config.yaml"));
    assert_eq!(kubelet("--kubelet-config /etc/k.yaml"), file("/var/lib/kubelet", "/etc/k.yaml"));
    let configz = Some(KubeletConfig::Configz { port: 10250 });
    assert_eq!(kubelet("--kubelet-config configz").map(|kubelet| kubelet.config), configz);
    let stated = kubelet("--kubelet-config single-numa-node/pod").unwrap().config;
    assert_eq!(stated, KubeletConfig::Stated { policy: Policy::SingleNumaNode, scope: Scope::Pod });
    let certificate = |words: &str| kubelet(words).unwrap().certificate;
    assert_eq!(certificate("--kubelet-profile talos"), KubeletCertificate::Cluster);
    assert_eq!(certificate("--kubelet-insecure"), KubeletCertificate::Unchecked);
    assert_eq!(certificate("--kubelet-ca-config-map m"), KubeletCertificate::ConfigMap("m".to_owned()));
}

#[test]
fn people_are_told_of_certificates() {
    for (words, wanted) in [
        ("", None),
        ("--kubelet-profile k3s", None),
        ("--kubelet-profile talos", Some("give --kubelet-ca-config-map or --kubelet-insecure")),
        ("--kubelet-profile talos --kubelet-ca-config-map m", None),
        (
            "--kubelet-profile k3s --kubelet-insecure",
            Some("any server at a node's address gets the exporter's token"),
        ),
        ("--kubelet-insecure", None),
        (
            "--updater-type nfd --kubelet-profile k3s",
            Some("nfd-topology-updater checks no kubelet's certificate"),
        ),
    ] {
        let flags = flags(words).unwrap();
        let note = flags.certificate_note(&flags.options(&|_| None).unwrap());
        assert_eq!(note.is_some(), wanted.is_some(), "{words}: {note:?}");
        assert!(note.unwrap_or_default().contains(wanted.unwrap_or_default()), "{words}");
    }
}

#[test]
fn people_are_told_of_each_check_that_is_left_out() {
    let flags = flags("-P kubernetes:v1.31 --kubelet-profile k3s --kubelet-insecure").unwrap();
    let platform = flags.platform.clone().unwrap();
    let options = Options { version: platform.version, ..flags.options(&|_| None).unwrap() };
    let warnings = flags.warnings(&options, &[Component::Exporter]);
    let [policy, certificates] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(policy.contains("the reports of all nodes"), "{policy}");
    assert!(certificates.contains("--kubelet-insecure"), "{certificates}");
    assert!(flags.warnings(&options, &[Component::Scheduler]).is_empty());
}

#[test]
fn image_flags_override_registries_and_registries_override_variables() {
    let variable =
        |name: &str| (name == "TAS_RESOURCE_EXPORTER_IMAGE").then(|| "quay.io/own/rte:1".to_owned());
    let images = |words: &str| flags(words).unwrap().options(&variable).unwrap().images;
    assert_eq!(images("").rte, "quay.io/own/rte:1");
    assert_eq!(images("--registry local:5000/x").rte, "local:5000/x/own/rte:1");
    assert_eq!(images("--registry local:5000 --rte-image z/rte:2").rte, "z/rte:2");
    assert!(images("--use-sha").nfd.contains("@sha256:"));
}

#[test]
fn errors_name_the_flag_and_the_allowed_values() {
    for (words, wanted) in [
        ("--updater-type local", "invalid value 'local' for '--updater-type <PROGRAM>'"),
        ("-R 0", "invalid value '0' for '--replicas <N>': it must be a number above zero, or auto"),
        (
            "--updater-sync-period 1d",
            "unknown unit \"d\" in duration \"1d\"; allowed are ns, us, ms, s, m and h",
        ),
        ("--updater-sync-period -1s", "unexpected argument '-1' found"),
        ("--updater-toleration a:Never", "the effect must be one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("--sched-node-selector a", "it must be KEY=VALUE"),
        ("--runbook-url a#b", "it must be the address of a page, without spaces and #"),
        ("--kubelet-profile mine", "is none of kubeadm, k3s, rke2,"),
        (
            "--kubelet-config yes",
            "it must be a path that begins with /, configz[:PORT], or a policy and a scope",
        ),
        ("--sched-preemption-mode Maybe", "it must be Disabled or Enabled"),
        ("--sched-leader-elect-resource a/b/c", "malformed leader election resource: \"a/b/c\""),
        ("--network-policies=perhaps", "it must be true or false"),
        ("-P suse", "platform \"suse\" is none of Kubernetes, OpenShift, HyperShift"),
    ] {
        let error = flags(words).map(|_| ()).unwrap_err();
        assert!(error.contains(wanted), "{words}: {error}");
    }
    let error = flags("--updater-config-file /missing").unwrap().options(&|_| None).unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "--updater-config-file /missing: No such file or directory (os error 2)"
    );
    for (words, refused) in [
        ("--metrics-port 8081", true),
        ("--metrics-port 8082", false),
        ("--metrics-port 8081 --updater-type rte", false),
    ] {
        let error = flags(words).unwrap().options(&|_| None).map_err(|error| error.to_string()).err();
        let names_both = |text: &String| text.contains("--metrics-port") && text.contains("--health-probe");
        assert_eq!(error.as_ref().is_some_and(names_both), refused, "{words}: {error:?}");
    }
}

#[test]
fn negative_replicas_mean_one_for_each_control_plane_node() {
    for (words, wanted) in [("-R auto", true), ("--replicas=-1", true), ("-R 2", false), ("", false)] {
        assert_eq!(flags(words).unwrap().needs_cluster(), wanted, "{words}");
    }
}

#[test]
fn names_and_images_that_cannot_be_are_refused() {
    for good in [
        "--updater-namespace a-1 --sched-namespace b",
        "--updater-name a.b-1 --pull-secret c --sched-profile-name Mine_1 --registry registry.example:5000/a/b",
        "--image registry.example:5000/a/b_c/d:V1.2-x@sha256:0123 --rte-image [::1]:5000/x --nfd-image Host/x",
    ] {
        assert!(flags(good).is_ok(), "{good}");
    }
    for (bad, wanted) in [
        ("--updater-namespace Bad_Name", "it must be 1 to 63 lower-case letters, digits and dashes"),
        ("--sched-namespace -a", "unexpected argument"),
        ("--sched-namespace a-", "it must be 1 to 63"),
        ("--image registry.example/Upper/name:1", "it must be an image such as"),
        ("--image a\u{1b}b", "it must be an image such as"),
        ("--pause-image=", "it must be an image such as"),
        ("--kubelet-root lib", "it must be a path that begins with /"),
        ("--registry=", "it must be a registry such as"),
        ("--registry registry.example/Upper", "it must be a registry such as"),
        ("--updater-name Bad_Name", "it must be lower-case letters, digits, dashes and dots"),
        ("--pull-secret a..b", "it must be lower-case letters, digits, dashes and dots"),
        ("--updater-priority-class -a", "unexpected argument"),
        ("--sched-priority-class=-a", "it must be lower-case letters, digits, dashes and dots"),
        ("--sched-profile-name=", "it must be a name without white space"),
    ] {
        let error = flags(bad).err().unwrap_or_default();
        assert!(error.contains(wanted), "{bad}: {error}");
    }
    let spaced = Cli::try_parse_from(["x", "--image", "bad image"]).map(|_| ()).unwrap_err().to_string();
    assert!(spaced.contains("it must be an image such as"), "{spaced}");
}

#[test]
fn address_ranges_are_checked() {
    let ranges = |text: &str| flags(&format!("--api-server-cidr {text}")).map(drop);
    for (text, wanted) in [
        ("192.0.2.0/24,2001:db8::1/128", None),
        ("192.0.2.1", Some("address ranges such as 192.0.2.0/24")),
        ("192.0.2.1/33", Some("0 to 32 bits")),
        ("::/129", Some("0 to 128 bits")),
        ("api.example/32", Some("address ranges such as")),
        ("192.0.2.0/", Some("0 to 32 bits")),
    ] {
        let error = ranges(text).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), wanted.is_some(), "{text}: {error:?}");
        assert!(error.unwrap_or_default().contains(wanted.unwrap_or_default()), "{text}");
    }
}
