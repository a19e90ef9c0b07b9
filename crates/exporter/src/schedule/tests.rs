use super::*;

const INTERVALS: Intervals =
    Intervals { timer: Duration::from_secs(60), release: Duration::from_secs(1), min_gap: Duration::ZERO };

/// A schedule with a clock: all times are milliseconds since the start.
struct Rig {
    schedule: Schedule,
    start: Instant,
}

impl Rig {
    fn new(intervals: Intervals) -> Self {
        let start = Instant::now();
        Self { schedule: Schedule::new(intervals, start), start }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    fn next(&self) -> Option<(u64, Cause)> {
        let millis = |at: Instant| u64::try_from((at - self.start).as_millis()).unwrap();
        self.schedule.next().map(|(at, cause)| (millis(at), cause))
    }

    /// Scans whenever due until `until`, always with this outcome and no jitter; the times of the scans.
    fn run(&mut self, until: u64, outcome: Outcome) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some((at, cause)) = self.next().filter(|(at, _)| *at <= until) {
            times.push(at);
            self.schedule.scanned(self.at(at), cause, outcome, 0.5);
        }
        times
    }
}

const HELD: Outcome = Outcome::Same { held: true };
const FREE: Outcome = Outcome::Same { held: false };

#[test]
fn the_first_scan_is_due_at_once_and_followed_up() {
    let mut rig = Rig::new(INTERVALS);
    assert_eq!(rig.next(), Some((0, Cause::Event)));
    assert_eq!(rig.run(1_000, FREE), [0, 25, 100, 300, 1_000]);
    assert_eq!(rig.next(), Some((60_000, Cause::Timer)));
}

#[test]
fn while_something_is_held_there_is_a_steady_look() {
    let mut rig = Rig::new(INTERVALS);
    assert_eq!(rig.run(5_000, HELD), [0, 25, 100, 300, 1_000, 2_000, 3_000, 4_000, 5_000]);
}

#[test]
fn the_steady_look_becomes_rarer_while_nothing_happens() {
    let mut rig = Rig::new(Intervals { timer: Duration::ZERO, ..INTERVALS });
    assert_eq!(rig.run(10_000, HELD)[8..], [5_000, 6_250, 7_812, 9_765]);
    let late = rig.run(120_000, HELD);
    assert!(late.windows(2).all(|pair| pair[1] - pair[0] <= 10_000), "{late:?}");
    assert_eq!(late[late.len() - 1] - late[late.len() - 2], 10_000);
    // Whatever happens, even if no look finds it changed anything, makes them frequent again.
    rig.schedule.event(rig.at(120_000));
    assert_eq!(rig.run(123_000, HELD), [120_000, 120_025, 120_100, 120_300, 121_000, 122_000, 123_000]);
}

#[test]
fn silence_says_nothing_when_no_event_can_come() {
    let mut rig = Rig::new(Intervals { timer: Duration::ZERO, ..INTERVALS });
    rig.schedule.set_events_available(false);
    let times = rig.run(60_000, HELD);
    assert_eq!(times[times.len() - 2..], [59_000, 60_000]);
    assert_eq!(rig.run(60_000 + 5_000, FREE), [61_000], "without a timer, only what is held is looked for");
    let mut rig = Rig::new(INTERVALS);
    rig.schedule.set_events_available(false);
    assert_eq!(rig.run(4_000, FREE)[4..], [1_000, 2_000, 3_000, 4_000], "a new pod gives no event either");
}

/// The event comes a moment before the change that it is about.
#[test]
fn a_timer_scan_leaves_the_follow_ups_of_an_event() {
    let mut rig = Rig::new(INTERVALS);
    rig.run(59_000, FREE);
    rig.schedule.event(rig.at(59_950));
    assert_eq!(rig.run(61_500, FREE), [59_950, 59_975, 60_000, 60_050, 60_250, 60_950]);
}

#[test]
fn an_event_is_looked_at_without_delay_and_a_storm_of_them_at_a_bounded_rate() {
    let mut rig = Rig::new(INTERVALS);
    rig.run(1_000, FREE);
    rig.schedule.event(rig.at(5_000));
    assert_eq!(rig.next(), Some((5_000, Cause::Event)));
    let mut scans = Vec::new();
    for millis in 5_000..6_000 {
        rig.schedule.event(rig.at(millis));
        if rig.next().is_some_and(|(at, _)| at <= millis) {
            scans.push(millis);
            rig.schedule.scanned(rig.at(millis), Cause::Event, Outcome::Changed { held: true }, 0.5);
        }
    }
    assert_eq!(scans[..4], [5_000, 5_008, 5_016, 5_024]);
    assert_eq!(scans[10..13], [5_125, 5_150, 5_175], "after a burst 40 a second");
    assert!(rig.next().is_some_and(|(at, _)| at <= 6_000 + 50), "the last event is not lost");
}

#[test]
fn a_change_starts_the_follow_ups_again() {
    let mut rig = Rig::new(INTERVALS);
    rig.run(2_000, HELD);
    rig.schedule.scanned(rig.at(3_000), Cause::Event, Outcome::Changed { held: false }, 0.5);
    assert_eq!(rig.run(5_000, FREE), [3_025, 3_100, 3_300, 4_000]);
}

#[test]
fn failures_are_tried_again_and_keep_the_timer() {
    let mut rig = Rig::new(INTERVALS);
    rig.schedule.scanned(rig.at(0), Cause::Event, Outcome::Failed(Duration::from_millis(150)), 0.5);
    assert_eq!(rig.next(), Some((150, Cause::Event)));
    rig.schedule.event(rig.at(20));
    assert_eq!(rig.next(), Some((20, Cause::Event)), "an event does not wait for the pause to end");
}

#[test]
fn the_timer_is_jittered_and_not_moved_by_other_scans() {
    for (fraction, wanted) in [(0.0, 54_000), (0.5, 60_000), (1.0, 66_000)] {
        let mut rig = Rig::new(INTERVALS);
        rig.schedule.scanned(rig.at(0), Cause::Event, FREE, fraction);
        rig.run(30_000, FREE);
        assert_eq!(rig.next(), Some((wanted, Cause::Timer)));
        rig.schedule.scanned(rig.at(wanted), Cause::Timer, FREE, 0.5);
        assert_eq!(rig.next(), Some((wanted + 60_000, Cause::Timer)), "nothing to follow up");
    }
}

#[test]
fn both_intervals_can_be_off() {
    let off = Intervals { timer: Duration::ZERO, release: Duration::ZERO, min_gap: Duration::ZERO };
    let mut rig = Rig::new(off);
    assert_eq!(rig.run(1_000_000, HELD), [0, 25, 100, 300, 1_000]);
    assert_eq!(rig.next(), None);
    rig.schedule.event(rig.at(1_000_000));
    assert_eq!(rig.next(), Some((1_000_000, Cause::Event)));
}

#[test]
fn what_is_doubted_is_looked_at_until_it_is_believed() {
    let off = Intervals { timer: Duration::ZERO, release: Duration::ZERO, min_gap: Duration::ZERO };
    let mut rig = Rig::new(off);
    assert_eq!(rig.run(3_000, Outcome::Unstable), [0, 25, 100, 300, 1_000, 1_700, 2_400]);
    rig.schedule.scanned(rig.at(3_100), Cause::Event, FREE, 0.5);
    assert_eq!(rig.next(), None);
}

/// One look in 500 ms from an event every 200 ms: never closer, never further, and the last event is not lost as with
/// the peer.
#[test]
fn looks_keep_the_distance_asked_for() {
    let off =
        Intervals { timer: Duration::ZERO, release: Duration::ZERO, min_gap: Duration::from_millis(500) };
    let mut rig = Rig::new(off);
    rig.run(10_000, FREE);
    let mut scans = Vec::new();
    for millis in 20_000..30_000 {
        if millis % 200 == 0 {
            rig.schedule.event(rig.at(millis));
        }
        scans.extend(rig.run(millis, FREE));
    }
    let wanted: Vec<u64> = (0..20).map(|nth| 20_000 + 500 * nth).collect();
    assert_eq!(scans, wanted);
    assert_eq!(rig.next(), Some((30_000, Cause::Event)));
}

/// What follows up a look of the timer is the timer's too, until an event comes: a doubted look, a change, a failure.
#[test]
fn follow_ups_of_the_timer_are_the_timers() {
    let failed = Outcome::Failed(Duration::from_millis(100));
    for outcome in [Outcome::Unstable, Outcome::Changed { held: true }, failed] {
        let mut rig = Rig::new(Intervals { release: Duration::ZERO, ..INTERVALS });
        rig.run(2_000, FREE);
        assert_eq!(rig.next(), Some((60_000, Cause::Timer)));
        rig.schedule.scanned(rig.at(60_000), Cause::Timer, outcome, 0.5);
        let (due, cause) = rig.next().unwrap();
        assert_eq!(cause, Cause::TimerFollowUp, "{outcome:?}");
        rig.schedule.scanned(rig.at(due), cause, outcome, 0.5);
        let (due, cause) = rig.next().unwrap();
        assert_eq!(cause, Cause::TimerFollowUp, "{outcome:?}");
        // The follow-ups do not move the timer.
        assert_eq!(rig.schedule.timer, Some(rig.at(120_000)), "{outcome:?}");
        rig.schedule.event(rig.at(due - 1));
        assert_eq!(rig.next().map(|(_, cause)| cause), Some(Cause::Event), "{outcome:?}");
    }
}
