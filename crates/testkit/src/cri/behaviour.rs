//! What a container of the fake runtime does, from words: in go its command line and its pod's annotations, out comes a
//! [`Behaviour`]. Nothing is executed and the clock is never read here.
//!
//! The first of these that says something wins:
//! 1. the pod annotations `testkit/run.NAME`, `testkit/start-delay.NAME`, `testkit/stop-delay.NAME` for container NAME;
//! 2. the container's command and arguments, when all of it is understood (else it stands for a real program);
//! 3. the pod annotations without a name;
//! 4. the server's options.
//!
//! A program is a sequence separated by `;` or `&&` of `sleep TIME`, `exit CODE`, `true`, `false` and `pause` (run
//! for ever), also behind `sh -c`. It ends with its first `exit`, else with 0 after its last step. TIME is a number
//! with `ms`, `s` (also without a unit), `m` or `h`, or `infinity`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::ContainerConfig;

const RUN: &str = "testkit/run";
const START_DELAY: &str = "testkit/start-delay";
/// The annotation of [`Behaviour::stop_delay`].
pub(crate) const STOP_DELAY: &str = "testkit/stop-delay";

/// One container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behaviour {
    /// How it ends by itself.
    pub run: Run,
    /// How long starting takes.
    pub start_delay: Duration,
    /// How long it takes to end, with exit code 0, once asked to; longer than the grace period means it is killed.
    pub stop_delay: Duration,
}

/// When a container ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Run {
    /// Not before it is stopped.
    #[default]
    Forever,
    /// So long after it started, with this exit code.
    For(Duration, i32),
}

impl Behaviour {
    /// The behaviour of the container `config` in a pod with these annotations.
    ///
    /// # Errors
    /// An annotation makes no sense; the message names it and what is allowed.
    pub(super) fn of(
        defaults: Self,
        annotations: &BTreeMap<String, String>,
        config: &ContainerConfig,
    ) -> Result<Self, String> {
        let name = config.metadata.as_ref().map_or("", |metadata| &metadata.name);
        let find = |key: &str| {
            let own = format!("{key}.{name}");
            let (own, general) = (annotations.get_key_value(&own), annotations.get_key_value(key));
            (own.map(borrowed), general.map(borrowed))
        };
        let (own, general) = find(RUN);
        let run = match (own, command(config), general) {
            (Some(text), _, _) | (None, None, Some(text)) => program_in(text)?,
            (None, Some(run), _) => run,
            (None, None, None) => defaults.run,
        };
        let delay = |key, default| match find(key) {
            (Some(text), _) | (None, Some(text)) => delay_in(text),
            (None, None) => Ok(default),
        };
        Ok(Self {
            run,
            start_delay: delay(START_DELAY, defaults.start_delay)?,
            stop_delay: delay(STOP_DELAY, defaults.stop_delay)?,
        })
    }
}

type Annotation<'a> = (&'a str, &'a str);

fn borrowed<'a>((key, value): (&'a String, &'a String)) -> Annotation<'a> {
    (key, value)
}

fn program_in((key, text): Annotation<'_>) -> Result<Run, String> {
    program(text).ok_or_else(|| {
        format!("annotation {key}: {text:?} is not a sequence of `sleep TIME`, `exit CODE`, `true`, `false`, `pause`")
    })
}

fn delay_in((key, text): Annotation<'_>) -> Result<Duration, String> {
    time(text)
        .flatten()
        .ok_or_else(|| format!("annotation {key}: {text:?} is not a time such as 250ms, 1.5s, 2m"))
}

/// What a command line does, if it is in our tiny language.
fn command(config: &ContainerConfig) -> Option<Run> {
    let words: Vec<&str> = config.command.iter().chain(&config.args).map(String::as_str).collect();
    words_in(&words)
}

fn words_in(words: &[&str]) -> Option<Run> {
    match words {
        [] => None,
        [shell, "-c", script, ..] if matches!(shell.rsplit('/').next(), Some("sh" | "bash")) => {
            program(script)
        }
        words => program(&words.join(" ")),
    }
}

/// How long a command run inside a container takes, and its exit code. One that is not understood stands for a real
/// program that is content, and "for ever" is a century.
pub(super) fn exec(command: &[String]) -> (Duration, i32) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match words_in(&words) {
        Some(Run::For(time, code)) => (time, code),
        Some(Run::Forever) => (Duration::from_secs(100 * 365 * 86_400), 0),
        None => (Duration::ZERO, 0),
    }
}

/// The program in `text`, or nothing when a part of it is not understood.
fn program(text: &str) -> Option<Run> {
    let text = text.trim().trim_end_matches(';').replace("&&", ";");
    let mut total = Duration::ZERO;
    let mut end = None;
    for step in text.split(';') {
        let words: Vec<&str> = step.split_whitespace().collect();
        let verb = words.first()?.rsplit('/').next()?;
        // The whole text is read even behind the end: half-understood programs are real ones.
        let step = match (verb, words.get(1..)?) {
            ("pause", []) => Some(Run::Forever),
            ("sleep", [text]) => match time(text)? {
                Some(time) => {
                    total = total.checked_add(time)?;
                    None
                }
                None => Some(Run::Forever),
            },
            ("true", []) => None,
            ("exit", []) => Some(Run::For(total, 0)),
            ("exit", [code]) => Some(Run::For(total, i32::from(code.parse::<u8>().ok()?))),
            ("false", []) => Some(Run::For(total, 1)),
            _ => return None,
        };
        end = end.or(step);
    }
    Some(end.unwrap_or(Run::For(total, 0)))
}

/// A time in seconds or with a unit; `Some(None)` is infinity.
fn time(text: &str) -> Option<Option<Duration>> {
    if matches!(text, "infinity" | "inf") {
        return Some(None);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::api::ContainerMetadata;
    use super::*;

    #[test]
    fn programs() {
        let check = |text: &str, expected: Option<Run>| assert_eq!(program(text), expected, "{text:?}");
        let ends = |millis, code| Some(Run::For(Duration::from_millis(millis), code));
        check("pause", Some(Run::Forever));
        check("/pause", Some(Run::Forever));
        check("sleep 3", ends(3000, 0));
        check("/bin/sleep 0.25", ends(250, 0));
        check("sleep infinity", Some(Run::Forever));
        check("exit 0", ends(0, 0));
        check("exit", ends(0, 0));
        check("exit 255;", ends(0, 255));
        check("true", ends(0, 0));
        check("false", ends(0, 1));
        check("sleep 1m; sleep 250ms && exit 7", ends(60_250, 7));
        check("sleep 1; sleep inf; exit 7", Some(Run::Forever));
        check("exit 1; sleep 2", ends(0, 1));
        for unknown in [
            "",
            ";",
            "nginx",
            "sleep",
            "sleep -1",
            "sleep nan",
            "sleep 1e300",
            "sleep 1 2",
            "exit 256",
            "exit x",
        ] {
            check(unknown, None);
        }
        check("exit 0; nginx", None);
    }

    fn config(name: &str, command: &[&str], args: &[&str]) -> ContainerConfig {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            command: owned(command),
            args: owned(args),
            ..ContainerConfig::default()
        }
    }

    #[test]
    fn the_nearest_word_wins() {
        let second = Duration::from_secs(1);
        let defaults = Behaviour { run: Run::For(second, 9), start_delay: second, stop_delay: second };
        let check = |annotations: &[(&str, &str)], config: &ContainerConfig, expected: Behaviour| {
            let annotations = annotations.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
            assert_eq!(Behaviour::of(defaults, &annotations, config), Ok(expected), "{annotations:?}");
        };
        let plain = config("a", &[], &[]);
        let sleep = config("a", &["sh", "-c"], &["sleep 5"]);
        let with = |run| Behaviour { run, ..defaults };
        check(&[], &plain, defaults);
        check(&[], &config("a", &["nginx"], &["-g", "daemon off"]), defaults);
        check(&[], &sleep, with(Run::For(5 * second, 0)));
        check(&[(RUN, "pause")], &plain, with(Run::Forever));
        check(&[(RUN, "pause")], &sleep, with(Run::For(5 * second, 0)));
        check(&[(RUN, "pause"), ("testkit/run.a", "exit 3")], &sleep, with(Run::For(Duration::ZERO, 3)));
        check(&[("testkit/run.b", "exit 3")], &plain, defaults);
        let slow =
            Behaviour { stop_delay: Duration::from_millis(1500), start_delay: Duration::ZERO, ..defaults };
        check(&[(STOP_DELAY, "1.5"), ("testkit/start-delay.a", "0s"), (START_DELAY, "9s")], &plain, slow);
    }

    #[test]
    fn bad_annotations_are_named() {
        let check = |key: &str, value: &str, expected: &str| {
            let annotations = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let error =
                Behaviour::of(Behaviour::default(), &annotations, &config("a", &[], &[])).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        };
        check(RUN, "dance", "annotation testkit/run: \"dance\" is not");
        check("testkit/run.a", "", "annotation testkit/run.a: \"\" is not");
        check(STOP_DELAY, "infinity", "annotation testkit/stop-delay: \"infinity\" is not a time");
        check(START_DELAY, "-1s", "annotation testkit/start-delay: \"-1s\" is not a time");
    }
}
