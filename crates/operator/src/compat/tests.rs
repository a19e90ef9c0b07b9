use deployer::platform::Platform;

use super::*;

fn start(line: &str) -> Result<Plan, Ending> {
    let words = line.split_whitespace().map(str::to_owned).collect();
    super::start(PROGRAM, words, &|_| None)
}

fn ending(line: &str) -> Ending {
    start(line).unwrap_err()
}

fn plan(line: &str) -> Plan {
    start(line).unwrap()
}

fn settings(line: &str) -> Settings {
    match plan(line).action {
        Action::Run(settings) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn flags_of_the_go_operator_become_settings() {
    let settings = settings(
        "-metrics-bind-address=127.0.0.1:1 --health-probe-bind-address 0 --leader-elect=false --platform OPENSHIFT \
         --platform-version 4.20.0-rc.1 --enable-scheduler=false --enable-mcp-conds-fwd --image-exporter e:1 -v=4",
    );
    assert_eq!((settings.metrics, settings.health), ("127.0.0.1:1".parse().ok(), None));
    assert!(!settings.leader_elect && !settings.scheduler && settings.environment.forward_pool_conditions);
    assert_eq!(settings.environment.platform.unwrap().platform, Some(Platform::OpenShift));
    assert_eq!(settings.environment.exporter_image.as_deref(), Some("e:1"));
}

#[test]
fn defaults_are_those_of_the_go_operator() {
    let plain = settings("");
    assert!(
        plain.leader_elect && plain.scheduler && plain.environment.platform == Some(PlatformSpec::default())
    );
    let ports = [plain.metrics, plain.health].map(|address| address.map(|address| address.port()));
    assert_eq!(ports, [Some(8080), Some(8081)]);
    assert_eq!(settings("-enable-metrics=false").metrics, None);
}

#[test]
fn exit_codes_are_those_of_the_go_operator() {
    let version = ending("--version");
    assert_eq!(version.stdout, format!("numaresources-operator {}\n", env!("CARGO_PKG_VERSION")));
    for (line, code) in [
        ("-handle-lifecycle-event=postStart", 0),
        ("--handle-lifecycle-event preStop", 0),
        ("-handle-lifecycle-event=other", 2),
        ("-unknown", 2),
        ("-leader-elect=maybe", 2),
        ("-metrics-bind-address=8080", 1),
        ("-platform-version=x.y", 1),
        ("-h", 0),
    ] {
        let ending = ending(line);
        assert_eq!(ending.code, code, "{line}: {}", ending.stderr);
        assert_eq!(ending.stderr.is_empty(), code == 0 && line != "-h", "{line}: {}", ending.stderr);
    }
    assert!(ending("-unknown").stderr.starts_with("flag provided but not defined: -unknown\nUsage of "));
}

/// B-32, A018.
#[test]
fn features_have_a_version() {
    let features: serde_json::Value = serde_json::from_str(&ending("-inspect-features").stdout).unwrap();
    assert_eq!(features["metadata"]["version"], api::features::VERSION);
    assert!(features["active"].as_array().unwrap().iter().any(|topic| topic == "metrics"));
}

#[test]
fn flags_without_effect_are_reported() {
    let said = |line: &str| plan(line).notes.len();
    assert_eq!(said("--platform minikube"), 1);
    assert_eq!(said("--enable-webhooks --webhook-port 1 --enable-http2 --image-scheduler x rest"), 5);
    assert_eq!(said("--enable-webhooks=false --enable-http2=false -v 4 -logtostderr"), 0);
}

/// U027.
#[test]
fn versions_are_shortened() {
    for (version, wanted) in [
        ("4.11.0-0.nightly-2022-05-25-123329", "4.11.0"),
        ("4.11.0", "4.11.0"),
        ("4.11", "4.11"),
        ("v1.36.3", "v1.36.3"),
    ] {
        assert_eq!(short(version), wanted);
    }
}

/// B-19: the namespace is obeyed, the definition can be had alone, and neither needs a cluster.
#[test]
fn rendered_objects_are_in_the_configured_namespace() {
    let Action::Render(_, given, options) = plan(
        "--render --platform openshift --platform-version 4.20.0 --render-namespace numa --render-image i:1 \
              --render-image-scheduler s:1",
    )
    .action
    else {
        panic!("not rendered")
    };
    for platform in Platform::ALL {
        let objects = render::objects(platform, given.version.clone(), &options).unwrap();
        let text = render_objects(&objects).unwrap();
        assert!(!text.contains("ownerReferences") && !text.contains("00000000-0000"), "{text}");
        assert!(text.contains("image: i:1") && text.contains("image: s:1"), "{text}");
        for object in &objects {
            assert!(object.namespace().is_none_or(|namespace| namespace == "numa"), "{object}");
        }
        for subject in text.lines().filter(|line| line.trim_start().starts_with("namespace:")) {
            assert!(subject.ends_with(" numa"), "{subject}");
        }
    }
    let definition = ending("--render-nrt-crd").stdout;
    assert!(definition.contains("noderesourcetopologies.topology.node.k8s.io"), "{definition}");
    let alone = render::Options { scheduler: false, ..options };
    let objects = render::objects(Platform::Kubernetes, None, &alone).unwrap();
    assert!(objects.iter().all(|object| object.kind().kind != "Deployment"));
}
