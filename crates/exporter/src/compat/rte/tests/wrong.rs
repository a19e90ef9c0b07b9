//! What is wrong, and how it ends.

use super::*;

#[test]
fn mistakes_are_named_all_at_once() {
    let world = World::new(
        &[
            (
                "/etc/rte/daemon/config.yaml",
                "nrtUpdater: {patchMode: 'yes', patchResync: '3', hostname: 5}\n\
                topologyExporter: {sleepInterval: 60 s, metricsMode: udp}",
            ),
            (
                "/etc/rte/extra/config.yaml",
                "kubelet: {topologyManagerPolicy: strict}\nresourceExclude: {n: memory}\npodExclude: {a: b}",
            ),
        ],
        &[],
    );
    let ending =
        world.ends(&["--pods-fingerprint-method=some", "--reference-container=a/b", "/etc/rte", "x", "y"]);
    let wanted = "error: unexpected arguments [\"x\", \"y\"]; at most one is allowed, the configuration root\n\
        error: /etc/rte/daemon/config.yaml: nrtUpdater.hostname: 5 is not allowed; it must be a text\n\
        error: /etc/rte/daemon/config.yaml: nrtUpdater.patchMode: \"yes\" is not allowed; it must be true or false\n\
        error: /etc/rte/daemon/config.yaml: nrtUpdater.patchResync: \"3\" is not allowed; it must be a whole number\n\
        error: /etc/rte/daemon/config.yaml: topologyExporter.metricsMode: \"udp\" is not allowed; it must be disabled, http, httptls\n\
        error: /etc/rte/daemon/config.yaml: topologyExporter.sleepInterval: \"60 s\" is not allowed; it must be a duration such as 60s, or nanoseconds\n\
        error: /etc/rte/extra/config.yaml: podExclude: {\"a\":\"b\"} is not allowed; it must be a list\n\
        error: /etc/rte/extra/config.yaml: resourceExclude.n: \"memory\" is not allowed; it must be a list\n\
        error: /etc/rte/extra/config.yaml: kubelet.topologyManagerPolicy: \"strict\" is not allowed; it must be none, best-effort, restricted, single-numa-node\n\
        error: --pods-fingerprint-method: \"some\" is not allowed; it must be all, with-exclusive-resources\n\
        error: --reference-container: \"a/b\" is not allowed; it must be namespace/pod/container\n";
    assert_eq!((ending.code, ending.stderr.as_str()), (255, wanted));
}

/// The daemon's file, arguments, and the one problem.
const UNUSABLE: &[(&str, &[&str], &str)] = &[
    ("", &["--sleep-interval=-1s"], "--sleep-interval: -1s is not allowed; it must be 0 or more"),
    ("", &["--hostname=Node_A"], "--hostname: \"Node_A\" is not allowed; it must be lower-case letters"),
    ("", &["--sysfs="], "--sysfs: \"\" is not allowed; it must be a directory"),
    ("", &["--podresources-socket=foobar://x"], "--podresources-socket: \"foobar://x\" is not allowed"),
    ("", &["--podresources-socket="], "--podresources-socket: \"\" is not allowed"),
    ("", &["--metrics-mode="], "--metrics-mode: \"\" is not allowed; it must be disabled, http, httptls"),
    ("", &["--pods-fingerprint-method="], "--pods-fingerprint-method: \"\" is not allowed"),
    (
        "",
        &["--metrics-mode=http", "--metrics-port=0"],
        "--metrics-port: 0 is not allowed; it must be 1 to 65535",
    ),
    ("", &["--metrics-mode=http", "--metrics-port=65536"], "--metrics-port: 65536 is not allowed"),
    (
        "",
        &["--metrics-mode=http", "--metrics-ip=a"],
        "--metrics-ip: \"a\" is not allowed; it must be an IP address",
    ),
    ("", &["--metrics-mode=httptls", "--metrics-tls-min-version=1.2"], "--metrics-tls-min-version: "),
    ("", &["--metrics-mode=httptls", "--metrics-tls-cipher-suites=ROT13"], "--metrics-tls-cipher-suites: "),
    ("", &["--config="], "--config: \"\" is not allowed; it must be an absolute path"),
    ("", &["rte"], "configuration root: \"rte\" is not allowed; it must be an absolute path"),
    ("- a\n", &[], "/etc/rte/daemon/config.yaml: is not a map of keys"),
    ("a: [\n", &[], "/etc/rte/daemon/config.yaml: "),
    ("topologyExporter: {timeUnitToLimitEvents: -1}", &[], "timeUnitToLimitEvents: -1ns is not allowed"),
];

#[test]
fn values_that_cannot_be_used_are_fatal() {
    let one = |world: World, arguments: &[&str], wanted: &str| {
        let ending = world.ends(arguments);
        assert!(ending.stderr.contains(wanted) && ending.code == 255, "{arguments:?}: {ending:?}");
        assert_eq!(ending.stderr.lines().count(), 1, "{arguments:?}: {ending:?}");
    };
    for (daemon, arguments, wanted) in UNUSABLE {
        one(World::new(&[("/etc/rte/daemon/config.yaml", daemon)], &[]), arguments, wanted);
    }
    let wanted = "set the variables REFERENCE_NAMESPACE and REFERENCE_POD_NAME, or --podreadiness=false";
    one(World::new(&[], &[("REFERENCE_POD_NAME", "")]), &[], wanted);
}

#[test]
fn unknown_keys_are_told_and_have_no_effect() {
    let world = World::new(
        &[
            (
                "/etc/rte/daemon/config.yaml",
                "global: {Verbose: 9}\nnrtupdater: {noPublish: true}\nnew: {deep: {key: [1]}}\nempty:\n",
            ),
            (
                "/etc/rte/extra/config.yaml",
                "KUBELET: {topologymanagerpolicy: restricted, cpuManagerPolicy: static}\ntopologyManagerPolicy: none\n",
            ),
        ],
        &[],
    );
    let plan = world.plan(&["--topology-manager-scope=pod"]);
    assert_eq!(plan.verbosity, 2, "keys of daemon files have one spelling");
    assert_eq!(
        format!("{:?}", plan.settings.sources.policy),
        "Some(Restricted)",
        "those of the other file have any"
    );
    let unknown =
        |file: &str, key: &str| format!("/etc/rte/{file}/config.yaml: unknown key {key:?} has no effect");
    let wanted = [
        unknown("daemon", "global.Verbose"),
        unknown("daemon", "new.deep.key"),
        unknown("daemon", "nrtupdater.noPublish"),
        unknown("extra", "KUBELET.cpuManagerPolicy"),
        unknown("extra", "topologyManagerPolicy"),
    ];
    assert_eq!(warnings(&plan)[..5], wanted);
}

#[test]
fn exit_codes_and_outputs() {
    let world = World::new(&[("/etc/rte/daemon/config.yaml", "- broken")], &[("REFERENCE_POD_NAME", "")]);
    let version = world.ends(&["--version"]);
    let text = format!("resource-topology-exporter {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version, Ending { stdout: text, stderr: String::new(), code: 0 }, "files are not looked at");
    for (arguments, code, wanted) in [
        (&["-h"][..], 0, "Usage of resource-topology-exporter:\n"),
        (&["--help"], 0, "  -add-nrt-owner\n"),
        (&["--nonsense"], 2, "flag provided but not defined: -nonsense\nUsage of "),
        (&["--sleep-interval=60"], 2, "invalid value \"60\" for flag -sleep-interval: parse error\n"),
        (&["--oneshot=maybe"], 2, "invalid boolean value \"maybe\" for -oneshot: parse error\n"),
        (
            &["--dump-config=/tmp/out"],
            2,
            "invalid value \"/tmp/out\" for flag -dump-config: allowed are -, .andexit and .log\nUsage",
        ),
        (&["--dump-config=.andexit"], 255, "error: /etc/rte/daemon/config.yaml: is not a map of keys\n"),
    ] {
        let ending = world.ends(arguments);
        assert!(
            ending.code == code && ending.stderr.contains(wanted) && ending.stdout.is_empty(),
            "{arguments:?}: {ending:?}"
        );
    }
}
