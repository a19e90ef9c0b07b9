//! The grammar, line by line.

use super::*;

const FLAGS: &[Flag] = &[
    Flag {
        name: "sleep-interval",
        kind: Kind::Duration,
        default: "60s",
        help: "how long to sleep\nbetween scans",
    },
    Flag { name: "patch", kind: Kind::Bool, default: "true", help: "patch" },
    Flag { name: "oneshot", kind: Kind::Bool, default: "false", help: "stop after one" },
    Flag { name: "q", kind: Kind::Bool, default: "false", help: "say nothing" },
    Flag { name: "port", kind: Kind::Int, default: "2112", help: "where to listen" },
    Flag { name: "hostname", kind: Kind::Text, default: "", help: "a name" },
    Flag { name: "sysfs", kind: Kind::Text, default: "/sys", help: "a folder" },
];

const SET: FlagSet<'_> = FlagSet { program: "rte", flags: &[FLAGS, KLOG] };

fn parse(line: &str) -> Result<Parsed, Outcome> {
    SET.parse(line.split_whitespace().map(|word| if word == "''" { "" } else { word }.to_owned()))
}

/// What was given and what is left, in one line.
fn show(parsed: &Parsed) -> String {
    let mut words: Vec<_> = parsed.values.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    words.extend(parsed.rest.iter().map(|word| format!("{word:?}")));
    words.join(" ")
}

#[test]
fn lines_are_read_as_go_reads_them() {
    let table = [
        ("", ""),
        ("-hostname a", r#"hostname=Text("a")"#),
        ("--hostname a", r#"hostname=Text("a")"#),
        ("--hostname=a", r#"hostname=Text("a")"#),
        ("-hostname=a=b", r#"hostname=Text("a=b")"#),
        ("-hostname=", r#"hostname=Text("")"#),
        // The next argument is the value, whatever it looks like.
        ("-hostname --", r#"hostname=Text("--")"#),
        ("-hostname -oneshot", r#"hostname=Text("-oneshot")"#),
        ("-oneshot", "oneshot=Bool(true)"),
        ("--oneshot=F -patch=1", "oneshot=Bool(false) patch=Bool(true)"),
        // A boolean takes no next argument, so that word ends the flags.
        ("-oneshot false -patch", r#"oneshot=Bool(true) "false" "-patch""#),
        ("-port 0x10 -port=-1", "port=Int(-1)"),
        ("-port -1", "port=Int(-1)"),
        ("-sleep-interval 1m30s", "sleep-interval=Duration(GoDuration(90000000000))"),
        ("root -oneshot", r#""root" "-oneshot""#),
        ("-oneshot -- -patch root", r#"oneshot=Bool(true) "-patch" "root""#),
        ("-oneshot - -patch", r#"oneshot=Bool(true) "-" "-patch""#),
        ("'' -oneshot", r#""" "-oneshot""#),
        ("-v=5 -logtostderr", "logtostderr=Bool(true) v=Int(5)"),
        ("-stderrthreshold INFO -vmodule a=1,b=2", r#"stderrthreshold=Text("INFO") vmodule=Text("a=1,b=2")"#),
    ];
    for (line, want) in table {
        assert_eq!(show(&parse(line).unwrap()), want, "{line:?}");
    }
}

#[test]
fn errors_are_in_gos_words() {
    let table = [
        ("-x", "flag provided but not defined: -x"),
        ("--x=1", "flag provided but not defined: -x"),
        ("-hostname", "flag needs an argument: -hostname"),
        ("---hostname", "bad flag syntax: ---hostname"),
        ("-=a", "bad flag syntax: -=a"),
        ("--=", "bad flag syntax: --="),
        ("-port y", r#"invalid value "y" for flag -port: parse error"#),
        ("-port=", r#"invalid value "" for flag -port: parse error"#),
        (
            "-port 99999999999999999999",
            r#"invalid value "99999999999999999999" for flag -port: value out of range"#,
        ),
        ("-port y -port 1", r#"invalid value "y" for flag -port: parse error"#),
        ("-sleep-interval 60", r#"invalid value "60" for flag -sleep-interval: parse error"#),
        ("-oneshot=yes", r#"invalid boolean value "yes" for -oneshot: parse error"#),
        ("-oneshot=", r#"invalid boolean value "" for -oneshot: parse error"#),
        ("-v=high", r#"invalid value "high" for flag -v: parse error"#),
        ("-é", "flag provided but not defined: -é"),
    ];
    for (line, want) in table {
        let outcome = parse(line).unwrap_err();
        assert_eq!(outcome.text(), format!("{want}\n{}", SET.usage()), "{line:?}");
        assert_eq!(outcome.code(), 2, "{line:?}");
    }
}

#[test]
fn help_is_an_outcome_of_its_own() {
    for line in ["-h", "--h", "-help", "--help", "-help=1", "-oneshot -h", "-h -x"] {
        let outcome = parse(line).unwrap_err();
        assert_eq!((outcome.code(), outcome.text()), (0, SET.usage()), "{line:?}");
    }
    assert_eq!(parse("-x -h").unwrap_err().code(), 2, "the first one counts");
    let own = [Flag { name: "h", kind: Kind::Text, default: "", help: "a host" }];
    let own = FlagSet { program: "own", flags: &[&own] };
    assert_eq!(own.parse(["-h".to_owned(), "a".to_owned()]).unwrap().text("h"), Some("a"));
}

#[test]
fn getters_know_only_what_was_given() {
    let parsed = parse("-port 1 -patch=false -sleep-interval 0 -hostname n root").unwrap();
    assert_eq!(parsed.int("port"), Some(1));
    assert_eq!(parsed.bool("patch"), Some(false));
    assert_eq!(parsed.duration("sleep-interval"), Some(GoDuration(0)));
    assert_eq!(parsed.text("hostname"), Some("n"));
    assert_eq!(parsed.rest, ["root"]);
    assert_eq!(parsed.given().collect::<Vec<_>>(), ["hostname", "patch", "port", "sleep-interval"]);
    assert!(parsed.has("port") && !parsed.has("sysfs"));
    // A default is not a given value, and a kind is not another.
    assert_eq!((parsed.text("sysfs"), parsed.text("port"), parsed.bool("oneshot")), (None, None, None));
}

#[test]
fn the_usage_text_is_gos() {
    let usage = FlagSet { program: "rte", flags: &[FLAGS] }.usage();
    let want = "Usage of rte:
  -hostname string
    \ta name
  -oneshot
    \tstop after one
  -patch
    \tpatch (default true)
  -port int
    \twhere to listen (default 2112)
  -q\tsay nothing
  -sleep-interval duration
    \thow long to sleep
    \tbetween scans (default 60s)
  -sysfs string
    \ta folder (default \"/sys\")
";
    assert_eq!(usage, want);
}

#[test]
fn klogs_defaults_are_of_their_kind() {
    for flag in KLOG {
        let value = format!("-{}={}", flag.name, flag.default);
        assert!(parse(&value).unwrap().has(flag.name), "{value}");
    }
}
