//! The secure port beside that of kube-scheduler: who may read what, and the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{GetParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Api, Client, Config};
use runtime::yaml::{self, Mode};
use scheduler::compat::{self, Start};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::{Program, rig};
use testkit::process_group::Spec;
use tokio_util::sync::CancellationToken;

use super::cluster::{create, eventually, fake_node, level, node_of, pod, refusal};

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Our scheduler with kube-scheduler's arguments, or what it says to them.
fn plan(words: &[String]) -> Result<compat::Plan, String> {
    match compat::start("kube-scheduler", words.to_vec(), &|_| None) {
        Start::Run(plan) => Ok(*plan),
        Start::End { text, .. } => Err(text),
    }
}

/// A client of the identity in a kubeconfig, at another port.
async fn client_at(port: u16, kubeconfig: Option<&Path>) -> Client {
    let url = format!("https://127.0.0.1:{port}").parse().unwrap();
    let mut config = match kubeconfig {
        None => Config::new(url),
        Some(path) => {
            let file = Kubeconfig::read_from(path).unwrap();
            let mut config =
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            (config.cluster_url, config.root_cert) = (url, None);
            config
        }
    };
    config.accept_invalid_certs = true;
    Client::try_from(config).unwrap()
}

/// Status and body.
async fn get(client: &Client, path: &str) -> (u16, String) {
    let request = Request::new("").get(path, &GetParams::default()).unwrap();
    let answer = client.send(request.map(Body::from)).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A kubeconfig with the token of a new account.
async fn account(control: &ControlPlane, client: &Client, name: &str) -> std::path::PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
    let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    accounts.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let request = TokenRequest::default();
    let made = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    control.kubeconfig_with_token(name, &made.status.unwrap().token.unwrap()).unwrap()
}

async fn may_read(client: &Client, subject: Value, paths: &[&str]) {
    let name = subject["name"].as_str().unwrap().replace(':', "-");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
        "rules": [{ "nonResourceURLs": paths, "verbs": ["get"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [subject],
    });
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(client.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_judged_as_kube_scheduler_judges_them() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    testkit::cluster::install_crds(&client, api::crd::NRT_CRD_YAML).await.unwrap();
    let (reader, stranger) =
        (account(&control, &client, "reader").await, account(&control, &client, "stranger").await);
    let jane = control.kubeconfig_for("jane", "readers").unwrap();
    let bad = control.kubeconfig_with_token("bad", "bad").unwrap();
    let subject = json!({ "kind": "ServiceAccount", "namespace": "kube-system", "name": "reader" });
    may_read(&client, subject, &["/metrics", "/configz", "/nothing"]).await;
    let group = json!({ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers" });
    may_read(&client, group, &["/configz"]).await;

    let (ours, theirs) = (port(), port());
    let kubeconfig = control.kubeconfig().display();
    let dir = tempfile::tempdir().unwrap();
    let flags = |name: &str, port: u16| -> Vec<String> {
        let file = dir.path().join(name);
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": { "kubeconfig": control.kubeconfig() },
            "leaderElection": { "leaderElect": false },
            "profiles": [{ "schedulerName": name }],
        });
        std::fs::write(&file, config.to_string()).unwrap();
        let words = format!(
            "--config={} --authentication-kubeconfig={kubeconfig} --authorization-kubeconfig={kubeconfig} \
             --bind-address=127.0.0.1 --secure-port={port}",
            file.display(),
        );
        words.split_whitespace().map(str::to_owned).collect()
    };
    let spec =
        Spec::new("kube-scheduler", rig.binaries.path(Program::Scheduler)).args(flags("theirs", theirs));
    let _theirs = control.process_group().spawn(spec).unwrap();
    let token = CancellationToken::new();
    let running =
        tokio::spawn(scheduler::shell::run(plan(&flags("ours", ours)).unwrap().args, level(), token.clone()));
    for port in [ours, theirs] {
        let anyone = client_at(port, None).await;
        eventually("the port is served", async || {
            let request = Request::new("").get("healthz", &GetParams::default()).unwrap();
            anyone.request_text(request).await.ok()
        })
        .await;
    }

    let admin = control.kubeconfig();
    for (who, kubeconfig, path, wanted) in [
        ("nobody", None, "healthz", 200),
        ("nobody", None, "livez", 200),
        ("nobody", None, "metrics", 403),
        ("nobody", None, "configz", 403),
        ("nobody", None, "metrics/resources", 403),
        ("a bad token", Some(bad.as_path()), "metrics", 401),
        ("a bad token", Some(bad.as_path()), "healthz", 401),
        ("an account", Some(stranger.as_path()), "metrics", 403),
        ("an account with rights", Some(reader.as_path()), "metrics", 200),
        ("an account with rights", Some(reader.as_path()), "configz", 200),
        ("an account with rights", Some(reader.as_path()), "nothing", 404),
        ("a certificate", Some(jane.as_path()), "metrics", 403),
        ("a certificate", Some(jane.as_path()), "configz", 200),
        ("a master", Some(admin), "configz", 200),
        ("a master", Some(admin), "metrics/resources", 200),
    ] {
        let (our_client, their_client) =
            (client_at(ours, kubeconfig).await, client_at(theirs, kubeconfig).await);
        let (our_answer, their_answer) = (get(&our_client, path).await, get(&their_client, path).await);
        assert_eq!(
            (our_answer.0, their_answer.0),
            (wanted, wanted),
            "{who} {path}: {our_answer:?} {their_answer:?}"
        );
        if ![200, 404].contains(&wanted) {
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(parsed(&our_answer.1), parsed(&their_answer.1), "{who} {path}");
        }
        if path == "configz" && wanted == 200 {
            let parsed = |text: &str| {
                let mut all = serde_json::from_str::<Value>(text).unwrap();
                all["componentconfig"]["profiles"][0]["schedulerName"] = Value::Null;
                all
            };
            assert_eq!(parsed(&our_answer.1), parsed(&their_answer.1), "{who} {path}");
        }
    }
    schedule_with_both(&client).await;
    let metrics = async |port: u16| {
        let admin = client_at(port, Some(admin)).await;
        let mut all = BTreeMap::new();
        for path in ["metrics", "metrics/slis"] {
            let (status, text) = get(&admin, path).await;
            assert_eq!(status, 200);
            all.extend(families(&text));
        }
        all
    };
    let our_pending = async || {
        let found = metrics(ours).await;
        let gated =
            found["scheduler_pending_pods"].samples.iter().any(|sample| sample.ends_with("\"gated\"} 1"));
        let refused = found["scheduler_pending_pods"]
            .samples
            .iter()
            .any(|sample| sample.ends_with("\"unschedulable\"} 1"));
        (gated && refused).then_some(found)
    };
    let (our_families, their_families) =
        (eventually("the gauges follow", our_pending).await, metrics(theirs).await);
    for (name, family) in &their_families {
        let is_stable = family.help.starts_with("[STABLE]");
        let is_wanted = name == "scheduler_pod_scheduling_sli_duration_seconds" || is_stable;
        if !is_wanted {
            continue;
        }
        println!("{name}: {:?}", family.samples);
        let Some(own) = our_families.get(name) else { panic!("{name} is missing: {family:?}") };
        println!("ours: {:?}", own.samples);
        let shape = |family: &Family| {
            (family.kind.clone(), family.help.clone(), family.labels.clone(), family.buckets.clone())
        };
        assert_eq!(shape(own), shape(family), "{name}");
    }
    token.cancel();
    running.await.unwrap().unwrap();
}

/// A pod that fits, one that does not, and one with a gate, for each scheduler.
async fn schedule_with_both(client: &Client) {
    fake_node(client, "a").await;
    for scheduler in ["ours", "theirs"] {
        for (name, cpus, gates) in
            [("fits", 1, None), ("large", 100, None), ("gated", 1, Some(json!([{ "name": "a.b/c" }])))]
        {
            let mut object = serde_json::to_value(pod(&format!("{scheduler}-{name}"), cpus)).unwrap();
            object["spec"]["schedulerName"] = json!(scheduler);
            if let Some(gates) = gates {
                object["spec"]["schedulingGates"] = gates;
            }
            create(client, &serde_json::from_value(object).unwrap()).await;
        }
        eventually("it is bound", async || node_of(client, &format!("{scheduler}-fits")).await).await;
        eventually("it is refused", async || refusal(client, &format!("{scheduler}-large")).await).await;
    }
}

/// A family of metrics.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// Without a full stop, which prometheus-client adds.
    help: String,
    labels: BTreeSet<String>,
    buckets: Vec<f64>,
    samples: Vec<String>,
}

/// The families of an exposition in Prometheus' plain text.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut all = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            name.clone_into(&mut current);
            all.entry(current.clone()).or_default().help = help.trim_end_matches('.').to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            all.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else {
            let family = all.entry(current.clone()).or_default();
            let inside = line
                .split_once('{')
                .and_then(|(_, rest)| rest.split_once('}'))
                .map_or("", |(inside, _)| inside);
            for (label, value) in inside.split(',').filter_map(|pair| pair.split_once('=')) {
                family.labels.insert(label.to_owned());
                let value = value.trim_matches('"');
                let bound = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap_or(f64::NAN) };
                if label == "le" && !family.buckets.contains(&bound) {
                    family.buckets.push(bound);
                }
            }
            if !line.contains("_bucket{") {
                family.samples.push(line.to_owned());
            }
        }
    }
    all
}

/// Both programs write the configuration that they would run with.
#[tokio::test(flavor = "multi_thread")]
async fn the_effective_configuration_is_that_of_kube_scheduler() {
    let Ok(rig) = rig() else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "a", "user": {} }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    std::fs::write(at("kubeconfig"), kubeconfig.to_string()).unwrap();
    let header = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         clientConnection: {{kubeconfig: {}}}\n",
        at("kubeconfig")
    );
    for (case, more) in [
        ("without a file", None),
        ("an empty file", Some("")),
        (
            "own limits",
            Some(
                "percentageOfNodesToScore: 30\nparallelism: 4\npodMaxBackoffSeconds: 20\nleaderElection: {leaderElect: false, leaseDuration: 30s}\n",
            ),
        ),
        (
            "two profiles",
            Some("profiles: [{schedulerName: a, percentageOfNodesToScore: 50}, {schedulerName: b}]\n"),
        ),
        (
            "own lists",
            Some(
                "profiles:\n- plugins:\n    multiPoint: {disabled: [{name: DynamicResources}, {name: PodTopologySpread}], enabled: [{name: NodeAffinity, weight: 7}]}\n    \
                 filter: {disabled: [{name: '*'}], enabled: [{name: NodeUnschedulable}]}\n    \
                 score: {disabled: [{name: TaintToleration}], enabled: [{name: NodeResourcesFit, weight: 5}]}\n",
            ),
        ),
        (
            "own arguments",
            Some(
                "profiles:\n- pluginConfig:\n  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 3}}\n  \
                 - {name: NodeResourcesFit, args: {ignoredResources: [a.b/c], scoringStrategy: {type: RequestedToCapacityRatio, \
                 resources: [{name: cpu, weight: 2}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}}\n  \
                 - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 20}}\n  - {name: VolumeBinding, args: {bindTimeoutSeconds: 30}}\n  \
                 - {name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
                 [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}}\n  \
                 - {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}\n",
            ),
        ),
    ] {
        let mut words = vec!["--secure-port=0".to_owned()];
        match more {
            None => words.push(format!("--kubeconfig={}", at("kubeconfig"))),
            Some(more) => {
                std::fs::write(at("config"), format!("{header}{more}")).unwrap();
                words.push(format!("--config={}", at("config")));
            }
        }
        let (mut theirs, mut ours) = (words.clone(), words);
        theirs.extend([
            "--authentication-skip-lookup".to_owned(),
            format!("--write-config-to={}", at("theirs")),
        ]);
        ours.push(format!("--write-config-to={}", at("ours")));
        let ran = Command::new(rig.binaries.path(Program::Scheduler)).args(theirs).output().unwrap();
        assert!(ran.status.success(), "{case}: {}", String::from_utf8_lossy(&ran.stderr));
        scheduler::shell::run(plan(&ours).unwrap().args, level(), CancellationToken::new()).await.unwrap();
        let read = |name: &str| {
            let text = std::fs::read_to_string(at(name)).unwrap();
            yaml::read_str::<Value>(name, &text, Mode::Strict).unwrap()
        };
        assert_eq!(read("ours"), read("theirs"), "{case}");
    }
}

#[test]
fn every_flag_of_kube_scheduler_is_known() {
    let Ok(rig) = rig() else { return };
    let help = Command::new(rig.binaries.path(Program::Scheduler)).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let Start::End { text, code: 0 } = compat::start("kube-scheduler", vec!["--help".to_owned()], &|_| None)
    else {
        panic!()
    };
    let known: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start().strip_prefix('-')?.split(' ').next()).collect();
    let lines = help.lines().filter_map(|line| {
        line.trim_start().strip_prefix("--").or(line.trim_start().get(4..)?.strip_prefix("--"))
    });
    let flags: Vec<&str> = lines.filter_map(|line| line.split([' ', '=']).next()).collect();
    assert!(flags.len() > 60, "{flags:?}");
    let unknown: Vec<_> = flags.iter().filter(|flag| **flag != "help" && !known.contains(flag)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
