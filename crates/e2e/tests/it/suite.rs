//! Our stack passes our suite: tiers 0 and 1, or what `E2E_ARGS` says.

use std::panic::resume_unwind;
use std::time::Instant;

use api::goduration::GoDuration;
use deployer::platform::Platform;
use serde_json::{Value, json};
use testkit::dump::{self, Dump};

use super::defects::play_lagging;
use super::interrupted;
use super::page;
use super::results::Results;
use super::rig::{LAG, OTHER_IMAGE, Rig, play, play_operator, told};

/// `E2E_ARGS='--focus 85792' cargo xtask test -p e2e --test it -- suite --nocapture` runs what it is told.
/// `E2E_INTERRUPTIONS=20` ends so many runs instead. Without both: tiers 0 and 1, the quick test, one interruption.
#[test]
fn our_stack_passes() {
    play(Platform::Kubernetes, async |rig| match (told("E2E_ARGS"), told("E2E_INTERRUPTIONS")) {
        (_, Some(count)) => interrupted::many(&rig, count.parse().unwrap()).await,
        (Some(arguments), None) => passes(&rig, &arguments).await,
        (None, None) => {
            passes(&rig, "--tier-up-to=1").await;
            quick_test(&rig).await;
            interrupted::many(&rig, 1).await;
        }
    });
}

/// The specs that need OpenShift's kinds: tiers 0 and 1, or what `E2E_OPENSHIFT_ARGS` says. The others reboot nodes.
#[test]
fn openshift() {
    let told = std::env::var("E2E_OPENSHIFT_ARGS");
    let told = told
        .unwrap_or_else(|_| "--label-filter=(tier0||tier1)&&(feature:tlscompliance||openshift)".to_owned());
    play(Platform::OpenShift, async |rig| passes(&rig, &told).await);
}

/// Every spec, on the rigs where it can be tried, two rigs at a time; the results of all as one page. Specs about
/// priorities are tried with the stock scheduler, which evicts.
#[test]
#[ignore = "`cargo xtask nightly e2e` runs it"]
fn whole() {
    let began = Instant::now();
    let (kubernetes, openshift) = std::thread::scope(|scope| {
        let openshift = scope.spawn(on_openshift);
        (on_kubernetes(), openshift.join())
    });
    let mut results = kubernetes;
    results.append(openshift.unwrap_or_else(|panic| resume_unwind(panic)));
    results.write(began.elapsed());
}

fn on_kubernetes() -> Results {
    let mut results = Results::default();
    play(Platform::Kubernetes, async |rig| {
        rig.allow_other_schedulers().await;
        let all = format!("--tier-up-to=3 --other-image={OTHER_IMAGE}");
        add(&rig, "Kubernetes", &all, &mut results).await;
        let stock = "--scheduler-name=default-scheduler --label-filter=feature:preemption";
        add(&rig, "Kubernetes, stock scheduler", stock, &mut results).await;
    });
    results
}

/// On clusters of OpenShift and of HyperShift, one after the other.
fn on_openshift() -> Results {
    let mut results = Results::default();
    let reboots = "--label-filter=openshift||feature:tlscompliance||feature:rte||upgrade";
    play(Platform::OpenShift, async |rig| add(&rig, "OpenShift", reboots, &mut results).await);
    let hosted = "--label-filter=hypershift";
    play(Platform::HyperShift, async |rig| add(&rig, "HyperShift", hosted, &mut results).await);
    results
}

/// Adds a run, in which nothing may fail.
async fn add(rig: &Rig, name: &str, arguments: &str, results: &mut Results) {
    let run = document(rig, &format!("--rollout-timeout=3m {arguments}")).await;
    let counts = &run["counts"];
    println!("{name}: {counts}, in {} s", run["seconds"]);
    for case in run["specs"].as_array().unwrap().iter().filter(|case| case["ending"] == "failed") {
        println!("{}: {}", case["id"], case["diagnosis"].as_str().unwrap_or_default());
    }
    let is_good = counts["failed"] == 0 && counts["notTried"] == 0 && run["verdicts"] == json!([]);
    results.add(name, arguments, run.clone());
    assert!(is_good, "{name}: {counts}: {}", run["verdicts"]);
}

/// What a run says of itself.
async fn document(rig: &Rig, arguments: &str) -> Value {
    let words: Vec<&str> = ["e2e", "-o", "json"].into_iter().chain(arguments.split_whitespace()).collect();
    let ended = rig.run(&words).await;
    println!("{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The stack is made where there is none, passes, and goes with all that came with it. It takes a minute, so it is
/// tried only where `E2E_INTERRUPTIONS` says something.
#[test]
fn made_and_removed() {
    if told("E2E_INTERRUPTIONS").is_none() {
        return;
    }
    play_operator(Platform::Kubernetes, async |rig| {
        rig.operator_is_ready().await;
        dump::settled(&rig.admin).await.unwrap();
        let before = interrupted::content(&rig).await;
        expect(&rig, "--focus 48685", 1).await;
        expect(&rig, "--setup --no-run-tests", 0).await;
        let made = interrupted::content(&rig).await;
        for object in MADE {
            assert!(made.contains_key(object), "{object} is missing");
        }
        // It is there already, and stays after a run that removes its own namespace.
        expect(&rig, "--setup --focus 48685", 0).await;
        expect(&rig, "--focus 47574", 0).await;
        expect(&rig, "--teardown --no-run-tests", 0).await;
        same_as(&rig, &before).await;
        expect(&rig, "--setup --teardown --focus 48685", 0).await;
        same_as(&rig, &before).await;
        println!("installation: made twice and removed, the cluster as before");
    });
}

/// What a setup makes.
const MADE: [&str; 4] = [
    "NUMAResourcesOperator.nodetopology.openshift.io numaresourcesoperator",
    "NUMAResourcesScheduler.nodetopology.openshift.io numaresourcesscheduler",
    "Namespace. tholepin-e2e",
    "DaemonSet.apps tholepin-e2e/numacell",
];

async fn expect(rig: &Rig, arguments: &str, code: i32) {
    let words: Vec<&str> = ["e2e"].into_iter().chain(arguments.split_whitespace()).collect();
    let ended = rig.run(&words).await;
    println!("{}\n{}", ended.stderr, ended.stdout);
    assert_eq!(ended.code, Some(code), "{arguments}");
}

/// The cluster is as it was, object by object, once controllers are at rest.
async fn same_as(rig: &Rig, before: &Dump) {
    dump::settled(&rig.admin).await.unwrap();
    let mut after = interrupted::content(rig).await;
    // The operator never deletes the definition of reports, which other programs share.
    after.retain(|name, _| !name.ends_with(".topology.node.k8s.io") || before.contains_key(name));
    let differences = dump::difference(before, &after);
    assert_eq!(differences, [""; 0]);
}

/// Specs wait for settled reports, so they pass beside exporters that publish each `E2E_LAG`, but for those that are
/// about fresh reports. Tiers 0 and 1, or what `E2E_ARGS` says.
#[test]
fn lagging_exporters() {
    let Some(lag) = told(LAG) else { return };
    play_lagging(async |rig| {
        let arguments = told("E2E_ARGS").unwrap_or_else(|| "--tier-up-to=1".to_owned());
        let run = document(&rig, &arguments).await;
        let specs = run["specs"].as_array().unwrap();
        let of = |ending: &str| specs.iter().filter(|spec| spec["ending"] == ending).collect::<Vec<_>>();
        let (passed, skipped, failed) = (of("passed"), of("skipped"), of("failed"));
        let ids = |specs: &[&Value]| -> Vec<String> {
            specs.iter().map(|spec| spec["id"].as_str().unwrap().to_owned()).collect()
        };
        let is_late = |spec: &&&Value| spec["reason"].as_str().unwrap().starts_with("longer than ");
        let late = failed.iter().filter(is_late).count();
        let period = GoDuration::parse_std(&lag).unwrap().as_secs_f64();
        let seconds = |value: &Value| value["seconds"].as_f64().unwrap();
        let waited: Vec<&Value> = passed.iter().copied().filter(|spec| seconds(spec) >= period).collect();
        let line = format!(
            "{} specs with reports each {lag}: {} passed, {} of them in {lag} or more; {} skipped, {} failed \
             ({}), {late} hung, in {:.0} s",
            specs.len(),
            passed.len(),
            waited.len(),
            skipped.len(),
            failed.len(),
            ids(&failed).join(" "),
            seconds(&run),
        );
        println!("e2e-lag: {line}");
        for case in &failed {
            println!(
                "{}: {}\n{}",
                case["id"],
                case["reason"],
                case["diagnosis"].as_str().unwrap_or_default()
            );
        }
        let text = format!(
            "`{arguments}` ({}): {line}. Those that took so long: {}.",
            page::when(),
            ids(&waited).join(", ")
        );
        page::write_between(PAGE, "e2e-lag", &page::wrapped(&text));
        assert_eq!(late, 0);
        assert_eq!(of("notTried").len(), 0);
        let unexpected = ids(&failed).into_iter().filter(|id| !FRESH.contains(&&**id));
        assert_eq!(unexpected.collect::<Vec<_>>(), [""; 0]);
        assert_eq!(run["verdicts"], json!([]));
    });
}

/// The specs that fail beside lagging exporters; docs/e2e.md has the reasons.
const FRESH: [&str; 0] = [];
/// The page that says which specs wait for reports.
const PAGE: &str = "docs/e2e.md";

async fn passes(rig: &Rig, arguments: &str) {
    let words: Vec<&str> =
        ["e2e", "--rollout-timeout=3m"].into_iter().chain(arguments.split_whitespace()).collect();
    let ended = rig.run(&words).await;
    println!("{}\n{}", ended.stderr, ended.stdout);
    println!("e2e: {}", ended.stdout.lines().last().unwrap_or_default());
    assert_eq!(ended.code, Some(0));
}

/// A line for each of the four nodes, and one for each scope.
async fn quick_test(rig: &Rig) {
    let ended = rig.run(&["test"]).await;
    println!("{}\n{}", ended.stderr, ended.stdout);
    assert_eq!(ended.code, Some(0));
    let said = ended.stdout.lines().last().unwrap_or_default();
    assert!(said.starts_with("6 specs: 6 passed, 0 skipped, 0 failed, "), "{said}");
}
