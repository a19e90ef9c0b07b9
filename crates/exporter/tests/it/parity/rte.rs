//! resource-topology-exporter's suite.

use exporter::compat::{Ending, Environment, Peer, Start};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use topology::fingerprint::Fingerprint;

use super::seat::{DEVICE, IDLE, Seat};
use super::validity::Expected;
use super::*;

const UPDATE: &str = "k8stopoawareschedwg/rte-update";
const METADATA: &str = "topology.node.k8s.io/numaplacement-metadata";

fn attribute_of<'a>(nrt: &'a NodeResourceTopology, name: &str) -> &'a str {
    attribute::get(&nrt.attributes, name).unwrap_or_default()
}

/// What the fingerprint of these pods is.
fn signed(seat: &Seat, pods: &[&str]) -> String {
    let names: Vec<_> = pods.iter().map(|pod| seat.name(pod)).collect();
    Fingerprint::of_names(names.iter().map(|name| ("default", name.as_str()))).to_string()
}

/// The program's name, a space, a semantic version.
#[test]
fn version_output_is_parseable() {
    for peer in [Peer::Rte, Peer::Nfd] {
        let env = Environment { variables: [].into(), ..Environment::real() };
        let Start::End(Ending { stdout, stderr, code }) =
            peer.start(peer.program(), vec!["--version".to_owned()], &env)
        else {
            panic!("{peer:?} runs");
        };
        assert_eq!((stderr.as_str(), code), ("", 0));
        let version = stdout.strip_prefix(peer.program()).unwrap().trim();
        let core = version.split(['-', '+']).next().unwrap();
        let numbers: Vec<u64> = core.split('.').map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 3, "{stdout:?}");
    }
}

/// Method valid, annotation as attribute, the same over intervals without changes, another with each Guaranteed pod
/// that comes or goes.
#[tokio::test]
async fn fingerprint_is_stable_and_changes_with_guaranteed_pods() {
    let Some(seat) = Seat::take(1).await else { return };
    // Has nothing exclusive, so it does not count.
    seat.create("shared", true, &[&[]]).await;
    let running = seat.rte(&[]).await;
    let mut last = String::new();
    for (pods, cpus) in [
        (&[][..], IDLE),
        (&["a"], "0 6/7/8 | 1 8/8/8"),
        (&["a", "b"], "0 4/7/8 | 1 8/8/8"),
        (&["b"], "0 5/7/8 | 1 8/8/8"),
        (&[], IDLE),
    ] {
        match pods {
            ["a"] => seat.guaranteed("a", "1").await,
            ["a", "b"] => seat.guaranteed("b", "2").await,
            ["b"] => seat.delete("a").await,
            _ if last.is_empty() => {}
            _ => seat.delete("b").await,
        }
        let nrt = seat.shows("cpu", cpus).await;
        assert_eq!(attribute_of(&nrt, "nodeTopologyPodsFingerprintMethod"), "with-exclusive-resources");
        assert_eq!(nrt.annotations()["topology.node.k8s.io/fingerprint"], fingerprint(&nrt));
        assert_eq!(fingerprint(&nrt), signed(&seat, pods), "{pods:?}");
        assert_ne!(fingerprint(&nrt), last);
        last = fingerprint(&nrt).to_owned();
        for pod in pods {
            seat.runs(pod).await;
        }
        running.looks_again().await;
        assert_eq!(fingerprint(&seat.object().await.unwrap()), last, "{pods:?}");
    }
    running.stop().await;
}

/// In both ways to write: valid, policy and scope stated, one owner, the Node; and only whole exclusive CPUs count.
#[tokio::test]
async fn object_is_valid_and_owned_and_only_exclusive_cpus_reduce_it_in_update_and_patch_mode() {
    let Some(seat) = Seat::take(1).await else { return };
    let node = Api::<Node>::all(seat.client.clone()).get(seat.node().name()).await.unwrap();
    let nrts = Api::<NodeResourceTopology>::all(seat.client.clone());
    for flags in [&["--patch-mode=false"][..], &["--patch-mode=true", "--patch-resync=10"]] {
        let running = seat.rte(flags).await;
        let before = seat.shows("cpu", IDLE).await;
        assert_eq!(before.name_any(), node.name_any());
        let owner =
            json!([{ "apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid() }]);
        assert_eq!(json!(before.owner_references()), owner);
        let rules = ["topologyManagerPolicy", "topologyManagerScope"].map(|name| attribute_of(&before, name));
        assert_eq!(rules, ["single-numa-node", "container"]);
        assert!(before.topology_policies.is_empty());

        seat.create("best-effort", true, &[&[]]).await;
        seat.guaranteed("half", "500m").await;
        for pod in ["best-effort", "half"] {
            seat.runs(pod).await;
        }
        running.looks_again().await;
        let now = seat.object().await.unwrap();
        assert_eq!(json!(now.zones), json!(before.zones), "{flags:?}");
        assert_eq!(now.metadata.generation, before.metadata.generation);

        seat.guaranteed("one", "1").await;
        let nrt = seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
        assert!(nrt.metadata.generation > now.metadata.generation);
        for pod in ["best-effort", "half", "one"] {
            seat.delete(pod).await;
        }
        seat.shows("cpu", IDLE).await;
        running.stop().await;
        nrts.delete(seat.node().name(), &DeleteParams::default()).await.unwrap();
    }
}

/// Only containers with exclusive resources are in the metadata, and no vector is on the busiest zone.
#[tokio::test]
async fn placement_metadata_counts_containers_with_exclusive_resources() {
    let Some(seat) = Seat::take(0).await else { return };
    let running = seat.rte(&["--refresh-node-resources"]).await;
    let _plugin = seat.sample_plugin().await;
    let idle = seat.shows(DEVICE, "0 1/1/1 | 1 -").await;
    assert_eq!(attribute_of(&idle, METADATA), "npv0v001::ve=leb89::cc=0::nn=2::bn=0");
    // The object says that these containers are in these zones.
    let says = async |places: &[(&str, &str, u32)]| {
        running.looks_again().await;
        let object = serde_json::to_value(seat.object().await.unwrap()).unwrap();
        let names: Vec<_> = places.iter().map(|(pod, ..)| seat.name(pod)).collect();
        let containers: Vec<_> =
            names.iter().zip(places).map(|(pod, p)| ("default", pod.as_str(), p.1)).collect();
        // That includes that the busiest zone has no vector.
        let known = Expected { containers: Some(&containers), ..Expected::default() };
        let seen = validity::check(&object, &known).unwrap();
        for (container, (.., zone)) in containers.iter().zip(places) {
            assert_eq!(seen.zone_of(*container, &containers), Some(*zone), "{container:?}: {object:#}");
        }
    };
    let one: &[(&str, &str)] = &[("cpu", "1"), ("memory", "64Mi")];
    seat.create("burstable", false, &[one]).await;
    seat.create("best-effort", true, &[&[]]).await;
    seat.runs("burstable").await;
    seat.runs("best-effort").await;
    says(&[]).await;
    let four: &[(&str, &str)] = &[("cpu", "4"), ("memory", "64Mi")];
    let eight: &[(&str, &str)] = &[("cpu", "8"), ("memory", "64Mi")];
    seat.create("two", true, &[four, eight]).await;
    seat.shows("cpu", "0 3/7/8 | 1 0/8/8").await;
    let both = [("two", "c0", 0), ("two", "c1", 1)];
    says(&both).await;
    seat.create("device", false, &[&[("cpu", "1"), (DEVICE, "1")]]).await;
    seat.shows(DEVICE, "0 0/1/1 | 1 -").await;
    says(&[both[0], both[1], ("device", "c0", 0)]).await;
    for pod in ["burstable", "best-effort", "two"] {
        seat.delete(pod).await;
    }
    seat.shows("cpu", IDLE).await;
    says(&[("device", "c0", 0)]).await;
    seat.delete("device").await;
    let nrt = seat.shows(DEVICE, "0 1/1/1 | 1 -").await;
    assert_eq!(attribute_of(&nrt, METADATA), attribute_of(&idle, METADATA));
    running.stop().await;
}

/// Where nothing else makes it look. The peer writes with each touch; here one that reveals nothing writes nothing.
#[tokio::test]
async fn touch_on_the_notify_file_updates_with_reason_reactive() {
    let Some(seat) = Seat::take(1).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run/rte/notify");
    // The peer never sees a file that is named like this.
    let notify = format!("--notify-file={}/run//rte/notify", dir.path().display());
    let running = seat.rte(&["--sleep-interval=0", "--kubelet-state-dir=none", &notify]).await;
    seat.shows("cpu", IDLE).await;
    // With the looks that follow the first.
    running.looks(5).await;
    let looked = running.looked().await;
    let mut last = seat.object().await.unwrap();
    seat.guaranteed("a", "1").await;
    seat.runs("a").await;
    assert_eq!(running.looked().await, looked);
    assert_eq!(seat.object().await.unwrap().resource_version(), last.resource_version());
    let touch = || {
        let now = std::fs::FileTimes::new().set_modified(std::time::SystemTime::now());
        std::fs::File::options().append(true).open(&file).unwrap().set_times(now).unwrap();
    };
    touch();
    last = {
        let nrt = seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
        assert_eq!(nrt.annotations()[UPDATE], "reactive");
        nrt
    };
    let looked = running.looked().await;
    touch();
    running.looks(looked + 1).await;
    assert_eq!(seat.object().await.unwrap().resource_version(), last.resource_version());
    seat.delete("a").await;
    running.stop().await;
}

/// On a pod that the kubelet runs, which writes conditions of its own.
#[tokio::test]
async fn conditions_of_the_pod_are_both_true_beside_the_kubelets() {
    let Some(seat) = Seat::take(0).await else { return };
    seat.create("us", true, &[&[]]).await;
    let running = seat.rte(&["--podreadiness=true"]).await;
    seat.runs("us").await;
    let wanted = ["PodresourcesFetched", "NodeTopologyUpdated", "Ready", "ContainersReady"];
    let all = async || {
        let pod = seat.pods().get(&seat.name("us")).await.unwrap();
        let all = pod.status.unwrap_or_default().conditions.unwrap_or_default();
        let good = |kind: &&str| all.iter().any(|entry| entry.type_ == *kind && entry.status == "True");
        wanted.iter().all(good).then_some(())
    };
    until("all conditions", all).await;
    running.looks_again().await;
    until("all conditions still", all).await;
    running.stop().await;
}

/// All of the operator's command line at once, with its environment and its mounts.
#[tokio::test]
async fn the_operators_operand_runs_as_it_is_started() {
    let Some(seat) = Seat::take(0).await else { return };
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("etc/resource-topology-exporter");
    for folder in [&config, &root.path().join("etc/secrets/rte")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    // What the operator distils from a KubeletConfig.
    let text = "kubelet:\n  topologyManagerPolicy: single-numa-node\nresourceExclude: {}\n";
    std::fs::write(config.join("config.yaml"), text).unwrap();
    seat.create("us", true, &[&[]]).await;
    seat.runs("us").await;
    let running = seat.operand(root.path()).await;
    let nrt = seat.shows("cpu", IDLE).await;
    assert_eq!(nrt.metadata.owner_references, None);
    assert_eq!(attribute_of(&nrt, "topologyManagerPolicy"), "single-numa-node");
    assert_eq!(attribute_of(&nrt, "topologyManagerScope"), "container");
    seat.guaranteed("a", "1").await;
    let nrt = seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
    assert_eq!(nrt.annotations()[UPDATE], "reactive");
    assert_eq!(fingerprint(&nrt), signed(&seat, &["a"]));
    let ready = async || {
        let pod = seat.pods().get(&seat.name("us")).await.unwrap();
        let all = pod.status.unwrap_or_default().conditions.unwrap_or_default();
        let good = |kind: &&str| all.iter().any(|entry| entry.type_ == *kind && entry.status == "True");
        ["PodresourcesFetched", "NodeTopologyUpdated"].iter().all(good).then_some(())
    };
    until("conditions", ready).await;
    assert!(running.scrape().await.unwrap().contains("rte_noderesourcetopology_writes_total"));
    seat.delete("a").await;
    seat.shows("cpu", IDLE).await;
    running.stop().await;
}

/// Names of the suite, in both modes and both ways to write, at an address of the host alone and at all.
#[tokio::test]
async fn metrics_over_http_and_https_have_the_names_at_every_address() {
    let Some(seat) = Seat::take(0).await else { return };
    let certificates = tempfile::tempdir().unwrap();
    let folder = format!("--metrics-certs-dir={}", certificates.path().display());
    for (mode, address, patch) in [
        ("http", "0.0.0.0", "true"),
        ("http", "127.120.110.100", "false"),
        ("httptls", "0.0.0.0", "false"),
        ("httptls", "127.120.110.100", "true"),
    ] {
        let flags = [("metrics-mode", mode), ("metrics-ip", address), ("patch-mode", patch)];
        let flags = flags.map(|(name, value)| format!("--{name}={value}"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain([folder.as_str()]).collect();
        let running = seat.rte(&flags).await;
        seat.shows("cpu", IDLE).await;
        seat.guaranteed("a", "1").await;
        seat.shows("cpu", "0 6/7/8 | 1 8/8/8").await;
        let node = seat.node().name();
        let lines = [
            format!(
                "rte_operation_delay_milliseconds{{node=\"{node}\",operation_name=\"podresources_scan\",trigger=\"periodic\"}} "
            ),
            format!(
                "rte_operation_delay_milliseconds{{node=\"{node}\",operation_name=\"node_resource_object_update\",trigger=\""
            ),
            format!("rte_wakeup_delay_milliseconds{{node=\"{node}\",trigger=\"periodic\"}} "),
            format!("rte_noderesourcetopology_writes_total{{node=\"{node}\",operation=\"update\",trigger=\""),
        ];
        let mut text = String::new();
        let all = async || {
            text = running.scrape().await.unwrap();
            lines.iter().all(|line| text.contains(line)).then_some(())
        };
        until(&format!("{flags:?}"), all).await;
        // A patch is smaller than the object.
        let value = |end: &str| {
            let name = format!("rte_noderesourcetopology_patch_size_ratio_{end}{{node=\"{node}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)).map(|value| value.parse::<f64>().unwrap())
        };
        let (sum, count) = (value("sum"), value("count"));
        assert_eq!(count.is_some(), patch == "true", "{text}");
        assert!(sum <= count && sum != Some(0.0), "{sum:?} {count:?}");
        seat.delete("a").await;
        seat.shows("cpu", IDLE).await;
        running.stop().await;
    }
}

/// With and without the peer's flag for it, which it needs and we do not.
#[tokio::test]
async fn device_of_the_sample_plugin_appears_and_the_log_tells_of_tracking() {
    let Some(seat) = Seat::take(0).await else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = Mutex::new(file.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    let _here = tracing::subscriber::set_default(subscriber);
    for flags in [&["--refresh-node-resources"][..], &["--patch-mode=false"]] {
        let running = seat.rte(flags).await;
        let nrt = seat.shows(DEVICE, "0 - | 1 -").await;
        let plugin = seat.sample_plugin().await;
        seat.shows(DEVICE, "0 1/1/1 | 1 -").await;
        drop(plugin);
        assert_eq!(show(&nrt, "cpu"), IDLE);
        seat.shows(DEVICE, "0 - | 1 -").await;
        running.stop().await;
    }
    let log = std::fs::read_to_string(file.path()).unwrap();
    for wanted in [
        "tracking node resources",
        "operation mode: patch",
        "operation mode: get+update",
        "using detected Topology Manager policy \"single-numa-node\" scope \"container\"",
    ] {
        assert!(log.contains(wanted), "{wanted:?} is not in {log}");
    }
}
