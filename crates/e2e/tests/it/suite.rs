//! Our stack passes our suite: tier 0, or what `E2E_ARGS` says.

use deployer::platform::Platform;

use super::interrupted;
use super::rig::{Rig, play};

/// `E2E_ARGS='--focus 85792' cargo xtask test -p e2e --test it -- suite --nocapture` runs what it is told.
/// `E2E_INTERRUPTIONS=20` ends so many runs instead. Without both: tier 0, the quick test, one interruption.
#[test]
fn our_stack_passes() {
    play(Platform::Kubernetes, async |rig| {
        let told = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (told("E2E_ARGS"), told("E2E_INTERRUPTIONS")) {
            (_, Some(count)) => interrupted::many(&rig, count.parse().unwrap()).await,
            (Some(arguments), None) => passes(&rig, &arguments).await,
            (None, None) => {
                passes(&rig, "--tier-up-to=0").await;
                quick_test(&rig).await;
                interrupted::many(&rig, 1).await;
            }
        }
    });
}

/// The specs that need OpenShift's kinds: tier 0, or what `E2E_OPENSHIFT_ARGS` says. The others reboot nodes.
#[test]
fn openshift() {
    let told = std::env::var("E2E_OPENSHIFT_ARGS");
    let told = told.unwrap_or_else(|_| "--label-filter=tier0&&feature:tlscompliance".to_owned());
    play(Platform::OpenShift, async |rig| passes(&rig, &told).await);
}

/// The specs about a hosted control plane.
#[test]
#[ignore = "`cargo xtask nightly e2e` runs it"]
fn hypershift() {
    play(Platform::HyperShift, async |rig| passes(&rig, "--label-filter=hypershift").await);
}

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
