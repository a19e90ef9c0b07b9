//! Rows of the parity list are named as there (U005 to U009, B-13).

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

const PAUSED: &str = "MachineConfigPoolPaused";

/// The conditions whose status changed.
fn turned<'a>(old: &'a [Condition], new: &'a [Condition]) -> impl Iterator<Item = &'a Condition> {
    let same = |new: &Condition| old.iter().any(|old| (&old.type_, &old.status) == (&new.type_, &new.status));
    new.iter().filter(move |new| !same(new))
}

/// `type status reason message @time`, one line each.
fn show(conditions: &[Condition]) -> Vec<String> {
    let line = |condition: &Condition| {
        let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
        format!("{type_} {status} {reason} {message:?} @{}", last_transition_time.0.as_second())
    };
    conditions.iter().map(line).collect()
}

/// U007, U009: the four of the base in their order and the extra one, with reasons.
#[test]
fn u007_u009_each_state_says_all_conditions() {
    let progressing = State::progressing("DaemonSetIsUpdating", "n/d is updating");
    let degraded = State::degraded(INTERNAL_ERROR, "no such thing");
    for (state, base) in [
        (
            State::Available,
            [
                r#"Available True Available "" @1"#,
                r#"Upgradeable True Upgradeable "" @1"#,
                r#"Progressing False Progressing "" @1"#,
                r#"Degraded False Degraded "" @1"#,
            ],
        ),
        (
            progressing,
            [
                r#"Available False Available "" @1"#,
                r#"Upgradeable False Upgradeable "" @1"#,
                r#"Progressing True DaemonSetIsUpdating "n/d is updating" @1"#,
                r#"Degraded False Degraded "" @1"#,
            ],
        ),
        (
            degraded,
            [
                r#"Available False Available "" @1"#,
                r#"Upgradeable False Upgradeable "" @1"#,
                r#"Progressing False Progressing "" @1"#,
                r#"Degraded True InternalError "no such thing" @1"#,
            ],
        ),
        (
            State::degraded(INTERNAL_ERROR, "no such thing").while_earlier_works(),
            [
                r#"Available True Available "what was asked for before works on" @1"#,
                r#"Upgradeable False Upgradeable "" @1"#,
                r#"Progressing False Progressing "" @1"#,
                r#"Degraded True InternalError "no such thing" @1"#,
            ],
        ),
    ] {
        let made = conditions(&state, &[Extra::unknown(PAUSED)], &[], Some(7), at(1));
        let unknown = format!(r#"{PAUSED} Unknown {PAUSED} "" @1"#);
        let wanted: Vec<&str> = base.into_iter().chain([unknown.as_str()]).collect();
        assert_eq!(show(&made), wanted, "{state:?}");
        assert!(made.iter().all(|condition| condition.observed_generation == Some(7)));
    }
}

/// U005, B-13: the time is that of the last change of the status, whatever else changes.
#[test]
fn b13_times_change_only_when_a_status_does() {
    let paused = |holds, message: &str| [Extra::known(PAUSED, holds, message.to_owned())];
    let one = conditions(&State::Available, &paused(true, "a"), &[], Some(1), at(1));
    let two = conditions(&State::Available, &paused(true, "a, b"), &one, Some(2), at(2));
    assert!(two.iter().all(|condition| condition.last_transition_time.0 == at(1)), "{:?}", show(&two));
    assert_eq!(turned(&one, &two).count(), 0);
    let three = conditions(&State::degraded(INTERNAL_ERROR, "x"), &paused(false, ""), &two, Some(2), at(3));
    let changed: Vec<&str> = turned(&two, &three).map(|condition| condition.type_.as_str()).collect();
    assert_eq!(changed, [AVAILABLE, UPGRADEABLE, DEGRADED, PAUSED]);
    for condition in &three {
        let wanted = if changed.contains(&condition.type_.as_str()) { 3 } else { 1 };
        assert_eq!(condition.last_transition_time.0, at(wanted), "{}", condition.type_);
    }
}

/// U008: what others say beside ours stays, and comes last.
#[test]
fn u008_conditions_of_others_stay() {
    let mut theirs = conditions(&State::Available, &[], &[], None, at(1)).remove(0);
    theirs.type_ = "Audited".to_owned();
    let made = conditions(&State::Available, &[], std::slice::from_ref(&theirs), Some(1), at(2));
    assert_eq!(made.len(), 5);
    assert_eq!(made.last(), Some(&theirs));
}

#[test]
fn times_are_whole_seconds() {
    let now = Timestamp::from_millisecond(1_999).unwrap();
    let made = conditions(&State::Available, &[], &[], None, now);
    assert_eq!(made[0].last_transition_time.0, at(1));
}

#[test]
fn messages_are_no_longer_than_the_server_takes() {
    for (length, wanted) in [(LONGEST_BYTES, LONGEST_BYTES), (LONGEST_BYTES + 1, LONGEST_BYTES)] {
        let made = conditions(&State::degraded("Long", "x".repeat(length)), &[], &[], None, at(1));
        assert_eq!(made[3].message.len(), wanted);
    }
    let made = conditions(&State::degraded("Long", "ä".repeat(LONGEST_BYTES)), &[], &[], None, at(1));
    assert!(made[3].message.len() <= LONGEST_BYTES && made[3].message.ends_with("ä..."));
}
