//! The deployer's two command lines, as far as they need no cluster.

use std::collections::BTreeSet;

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
    // OpenShift's kubelets have certificates of another authority than the cluster's.
    let certificates =
        "warning: kubelets here may have certificates that the cluster's authority did not sign";
    for (flags, warning) in [
        ("-P kubernetes:1.36", ""),
        ("-P openshift:4.20", certificates),
        ("-P hypershift:4.20", certificates),
        ("-P openshift:4.20 --kubelet-ca-config-map kubelets", ""),
    ] {
        let (code, stdout, stderr) = tholepin(&format!("render {flags}"));
        assert!(code == 0 && stdout.starts_with("# Rendered by tholepin "), "{flags}: {stderr}");
        assert!(stderr.starts_with(warning) && stderr.is_empty() == warning.is_empty(), "{flags}: {stderr}");
        assert!(stderr.lines().count() <= 1, "{flags}: {stderr}");
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
        // Each begins with a comment, which is no object.
        let objects = |text: String| -> Vec<String> {
            text.split("---\n")
                .filter(|text| !text.is_empty() && !text.starts_with('#'))
                .map(str::to_owned)
                .collect()
        };
        let parts =
            ["api", "topology-updater", "scheduler-plugin"].map(|part| objects(render(part))).concat();
        assert!(parts == objects(render("")), "{program}");
        assert!(parts.concat().contains("schedulerName: p\n"), "{program}");
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
        ("version -o json", 0, "\"version\": \"0", ""),
        ("completion bash", 0, "exporter", ""),
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

#[test]
fn flags_without_effect_are_refused_and_errors_name_the_flag() {
    for (words, starts, ends) in [
        (
            "render operator --existing-namespace one",
            "error: --existing-namespace is for exporter and scheduler",
            "",
        ),
        (
            "render resource-claims --monitoring",
            "error: --monitoring is for exporter, scheduler, operator and hardware; nothing else",
            "",
        ),
        (
            "render --updater-type rte --monitoring",
            "error: --monitoring is for our exporter and scheduler",
            "",
        ),
        (
            "render scheduler --sched-type plugin --monitoring",
            "error: --monitoring is for our exporter and scheduler",
            "",
        ),
        (
            "render -P openshift:v4.18",
            "error: --kubelet-config: kubelet configuration: configz is not allowed; it must be a file or",
            "(on OpenShift before 4.20: --kubelet-config /etc/kubernetes/kubelet.conf)",
        ),
    ] {
        let (code, stdout, stderr) = tholepin(words);
        let is_said = stderr.starts_with(starts) && stderr.trim_end().ends_with(ends);
        assert!(code == 1 && stdout.is_empty() && is_said, "{words}: {code} {stderr}");
    }
    let words = "render -P openshift:v4.18 --kubelet-config /etc/kubernetes/kubelet.conf";
    let (code, stdout, stderr) = tholepin(words);
    assert!(code == 0 && stdout.contains("/host/kubelet-config/kubelet.conf"), "{stderr}");
    for (words, namespaces) in [
        ("render resource-claims -n foo", &["foo"][..]),
        ("render -n foo", &["foo", "foo-scheduler"]),
        ("render -n foo --updater-namespace bar", &["bar", "foo-scheduler"]),
        ("render operator -n foo", &["foo"]),
    ] {
        let (code, stdout, stderr) = tholepin(words);
        let lines = stdout.lines().filter_map(|line| line.trim_start().strip_prefix("namespace: "));
        let found: BTreeSet<&str> = lines.collect();
        assert!(code == 0 && found == namespaces.iter().copied().collect(), "{words}: {found:?} {stderr}");
    }
    let (code, _, stderr) = tholepin(&format!("render -n {}", "a".repeat(54)));
    assert!(code == 1 && stderr.starts_with("error: --namespace: "), "{stderr}");
}

#[test]
fn every_definition_is_printed() {
    let (code, stdout, _) = tholepin("crds");
    let names: Vec<&str> = stdout.lines().filter_map(|line| line.strip_prefix("  name: ")).collect();
    let wanted = [
        "noderesourcetopologies.topology.node.k8s.io",
        "numaresourcesoperators.nodetopology.openshift.io",
        "numaresourcesschedulers.nodetopology.openshift.io",
        "deviceconfigs.hardware.tholepin.dev",
    ];
    assert_eq!((code, names), (0, wanted.to_vec()));
}

#[test]
fn no_slip_leads_to_a_change_of_a_cluster() {
    for (word, suggests) in [("status", false), ("setop", true), ("depoly", true), ("validat", true)] {
        let (code, _, stderr) = tholepin(word);
        assert!(code == 2 && stderr.contains("similar subcommand") == suggests, "{word}: {stderr}");
        assert!(!stderr.contains("'setup'") || word == "setop", "{stderr}");
    }
}

#[test]
fn every_command_that_help_shows_has_a_man_page() {
    let (code, page, stderr) = tholepin("man");
    assert!(code == 0 && page.contains(".TH tholepin 1") && stderr.is_empty(), "{code} {page} {stderr}");
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new");
    assert_eq!(tholepin(&format!("man {}", pages.display())), (0, String::new(), String::new()));
    for name in ["tholepin.1", "tholepin-deploy.1", "tholepin-exporter.1", "tholepin-man.1"] {
        let page = std::fs::read_to_string(pages.join(name)).unwrap();
        assert!(page.contains(".SH NAME"), "{name}: {page}");
    }
    assert!(!pages.join("tholepin-pause.1").exists(), "help does not show it");
    let (code, _, stderr) = tholepin("man /dev/null/pages");
    assert!(
        code == 1 && stderr.starts_with("error: /dev/null/pages: cannot be written: "),
        "{code} {stderr}"
    );
}

#[test]
fn a_closed_pipe_ends_completions_quietly() {
    use std::process::{Command, Stdio};
    let installed = Installed::under("tholepin");
    for arguments in [&["completion", "zsh"][..], &["man"], &["crds"], &["cdi", "list", "-o", "wide"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(&installed.program);
        let child = command.args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    }
}

#[test]
fn without_an_api_server_commands_end_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n\
                clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: x, user: {}}]\n";
    std::fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let installed = Installed::under("tholepin");
    for (words, code, wanted) in [
        ("remove", 1, "error: the API server cannot be reached: "),
        ("remove --dry-run=client", 1, "error: the API server cannot be reached: "),
        ("detect", 2, "error: listing ClusterVersions: "),
    ] {
        let began = std::time::Instant::now();
        let (is, stdout, stderr) = run_in(&installed.program, words, &[("KUBECONFIG", &config)]);
        assert!(
            is == code && stdout.is_empty() && stderr.starts_with(wanted),
            "{words}: {is} {stdout} {stderr}"
        );
        assert!(began.elapsed().as_secs() < 10, "{words}");
    }
    for (config, wanted) in [("/dev/zero", "it is not a regular file"), ("/proc", "it is not a regular file")]
    {
        let (code, _, stderr) = run_in(&installed.program, "detect", &[("KUBECONFIG", config)]);
        assert!(code == 1 && stderr.contains(wanted), "{config}: {stderr}");
        let (code, _, stderr) = run_in(&installed.program, &format!("validate --kubeconfig {config}"), &[]);
        assert!(code == 2 && stderr.contains(wanted), "{config}: {stderr}");
    }
}
