//! The deployer's two command lines, as far as they need no cluster.

use super::{Installed, run_in};

/// Exit code and both outputs of `deployer`, with these variables and no others: no HOME, no KUBECONFIG.
fn deployer(words: &str, environment: &[(&str, &str)]) -> (i32, String, String) {
    run_in(&Installed::under("deployer").program, words, environment)
}

fn tholepin(words: &str) -> (i32, String, String) {
    run_in(&Installed::under("tholepin").program, words, &[])
}

#[test]
fn the_peer_is_there_by_name_and_as_a_subcommand() {
    let by_name = deployer("help render", &[]);
    assert_eq!(by_name.0, 0);
    assert!(
        by_name.1.starts_with("render all the manifests\n\nUsage:\n  deployer render [flags]\n"),
        "{by_name:?}"
    );
    assert_eq!(tholepin("deployer help render"), by_name);
    assert_eq!(
        deployer("nonsense", &[]),
        (1, String::new(), "unknown command \"nonsense\" for \"deployer\"\n".to_owned())
    );
}

#[test]
fn rendering_needs_no_cluster_and_no_home() {
    let images = [
        ("TAS_SCHEDULER_PLUGIN_IMAGE", "quay.io/x/scheduler:1"),
        ("TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE", "quay.io/x/controller:1"),
    ];
    let (code, stdout, stderr) = deployer("-P kubernetes:v1.24 render", &images);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(images.iter().all(|(_, image)| stdout.contains(&format!("image: {image}\n"))), "{stdout}");
    for updater in ["RTE", "NFD"] {
        for enabled in [true, false] {
            let words =
                format!("-P kubernetes:v1.26 --updater-type={updater} --updater-pfp-enable={enabled} render");
            let (code, stdout, _) = deployer(&words, &[]);
            assert!(code == 0 && stdout.contains(&format!("--pods-fingerprint={enabled}\n")), "{words}");
        }
    }
    for platform in ["kubernetes:1.36", "openshift:4.20", "hypershift:4.20"] {
        let (code, stdout, stderr) = tholepin(&format!("render -P {platform}"));
        assert!(code == 0 && stdout.starts_with("---\n") && stderr.is_empty(), "{platform}: {stderr}");
    }
}

#[test]
fn components_rendered_one_by_one_are_the_whole() {
    for program in ["tholepin", "deployer"] {
        let installed = Installed::under(program);
        let render = |what: &str| {
            run_in(
                &installed.program,
                &format!("render {what} -P kubernetes:v1.30 --sched-profile-name=p --sched-verbose=7"),
                &[],
            )
            .1
        };
        let parts = ["api", "topology-updater", "scheduler-plugin"].map(render).concat();
        assert_eq!(parts, render(""), "{program}");
        assert!(parts.contains("schedulerName: p\n"), "{program}");
    }
}

#[test]
fn exit_codes_say_how_it_went() {
    for (words, code, stdout, stderr) in [
        ("render --nonsense", 2, "", "unexpected argument '--nonsense'"),
        ("render nonsense", 2, "", "invalid value 'nonsense' for '[WHAT]'"),
        (
            "render policy",
            1,
            "",
            "error: the SELinux policy depends on OpenShift's version: give --platform openshift:VERSION",
        ),
        ("render policy -P openshift:4.18", 0, "(block rte\n", ""),
        ("render resource-claims --namespace a --account b", 0, "'system:serviceaccount:a:b'", ""),
        (
            "render --updater-namespace=a --sched-namespace=a",
            1,
            "",
            "error: namespace: \"a\" for updater and scheduler is not allowed",
        ),
        ("deploy --kubeconfig /missing", 1, "", "error: kubeconfig /missing: "),
        ("deploy --diff --kubeconfig /missing", 2, "", "error: kubeconfig /missing: "),
        ("detect --kubeconfig /missing", 1, "", "error: kubeconfig /missing: "),
        ("validate --kubeconfig /missing", 2, "", "error: kubeconfig /missing: "),
        ("images -o json", 0, "\"topology_updater\": ", ""),
        ("images", 0, "THOLEPIN_IMAGE=", ""),
        ("crds", 0, "\n  name: noderesourcetopologies.topology.node.k8s.io\n", ""),
        ("version -o json", 0, "\"version\": \"v", ""),
        ("completion bash", 0, "topology-updater", ""),
    ] {
        let (is, out, err) = tholepin(words);
        assert!(is == code && out.contains(stdout) && err.contains(stderr), "{words}: {is} {out} {err}");
        assert!(
            stdout.is_empty() == out.is_empty() && stderr.is_empty() == err.is_empty(),
            "{words}: {out} {err}"
        );
    }
    for (words, code, stderr) in [
        ("deploy --kubeconfig /missing", 1, "kubeconfig /missing: "),
        ("remove --kubeconfig /missing", 1, "kubeconfig /missing: "),
        ("validate --kubeconfig /missing", 1, "kubeconfig /missing: "),
        ("completion zsh", 0, ""),
        ("version --full", 0, ""),
    ] {
        let (is, _, err) = deployer(words, &[]);
        assert!(
            is == code && err.starts_with(stderr) && stderr.is_empty() == err.is_empty(),
            "{words}: {is} {err}"
        );
    }
}
