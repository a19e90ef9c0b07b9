use proptest::prelude::*;

use super::*;

fn policy(after: u64, most: u64) -> config::HealthPolicy {
    let secs = Duration::from_secs;
    config::HealthPolicy {
        recover_after: secs(after),
        recover_at_most: secs(most),
        ..config::HealthPolicy::default()
    }
}

/// Feeds one observation per second (`.` healthy, `x` broken) and compares the resulting health.
#[track_caller]
fn check(after: u64, most: u64, seen: &str, wanted: &str) {
    let policy = policy(after, most);
    let mut health: Option<Health> = None;
    let mut got = String::new();
    for (second, what) in seen.chars().enumerate() {
        let now = Duration::from_secs(second as u64);
        let what = (what == 'x').then_some("broken");
        match &mut health {
            None => health = Some(Health::new(what, &policy)),
            Some(health) => health.observe(now, what, &policy),
        }
        got.push(if health.as_ref().unwrap().unhealthy_reason().is_none() { '.' } else { 'x' });
    }
    assert_eq!(got, wanted, "seen {seen}");
}

#[test]
fn problems_count_at_once_and_recovery_when_it_lasts() {
    check(0, 0, ".x.x.", ".x.x.");
    check(2, 100, "..x....", "..xxx..");
    // Healthy, but not continuously.
    check(2, 100, ".x.x.x...", ".xxxxxxx.");
    // Broken from the start.
    check(2, 100, "xx...", "xxxx.");
    // Breaks soon after recovery: the wait doubles each time.
    check(1, 100, ".x..x...x.....", ".xx.xxx.xxxxx.");
    // The wait has an upper limit.
    check(2, 3, ".x...x....", ".xxx.xxxx.");
    // After a long time without problems the wait starts over.
    check(1, 4, ".x.......x..", ".xx......xx.");
}

#[test]
fn the_reason_includes_the_wait() {
    let policy = policy(10, 100);
    let mut health = Health::new(None, &policy);
    assert_eq!(health.due(), None);
    health.observe(Duration::from_secs(1), Some("link is down"), &policy);
    assert_eq!((health.unhealthy_reason().unwrap().as_str(), health.due()), ("link is down", None));
    health.observe(Duration::from_secs(5), None, &policy);
    assert_eq!(health.unhealthy_reason().unwrap(), "link is down; must look healthy for 10s");
    assert_eq!(health.due(), Some(Duration::from_secs(15)));
}

proptest! {
    /// A problem counts at once; recovery takes at least the shortest wait, and at most the longest.
    #[test]
    fn health_invariants_hold(
        seen in prop::collection::vec((0_u64..20, any::<bool>()), 1..200), after in 0_u64..20, factor in 1_u64..20,
    ) {
        let most = after * factor;
        let policy = policy(after, most);
        let (mut now, mut good_for) = (0, None);
        let mut health = Health::new((!seen[0].1).then_some("x"), &policy);
        let mut was = seen[0].1;
        for (step, good) in seen {
            now += step;
            health.observe(Duration::from_secs(now), (!good).then_some("x"), &policy);
            let healthy = health.unhealthy_reason().is_none();
            if good {
                let since = *good_for.get_or_insert(now);
                prop_assert!(was || !healthy || now - since >= after);
                prop_assert!(healthy || now - since < most.max(after) || was);
            } else {
                good_for = None;
                prop_assert!(!healthy);
            }
            prop_assert!(!(was && good) || healthy, "a healthy observation never makes it worse");
            was = healthy;
        }
    }
}
