use super::*;
use std::fs;

use topology::fingerprint::status::Status;

/// `expected computed second pods..`, where `-` is nothing.
fn record(text: &str) -> Record {
    let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word });
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (expected, computed, second) = (next(), next(), next());
    let pods = words.map(|pod| record::Pod { namespace: "ns".to_owned(), name: pod.to_owned() }).collect();
    Record {
        fingerprint_expected: expected,
        fingerprint_computed: computed,
        record_time: second.parse().ok().and_then(|second| jiff::Timestamp::from_second(second).ok()),
        pods,
        node_name: "node".to_owned(),
    }
}

fn show(outcome: &Outcome) -> String {
    let names = |pods: &[record::Pod]| pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>().join("+");
    let time =
        |time: Option<jiff::Timestamp>| time.map_or("-".to_owned(), |time| time.as_second().to_string());
    let one = |d: &Difference| {
        format!(
            "{}!={} found {} at {}/{} rte[{}] sched[{}]",
            d.expected,
            d.computed,
            d.found,
            time(d.scheduler_time),
            time(d.exporter_time),
            names(&d.exporter_only),
            names(&d.scheduler_only)
        )
    };
    outcome.differences.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Of the exporter, of the scheduler, what differs.
type Row = (&'static [&'static str], &'static [&'static str], Result<&'static str, &'static str>);

#[test]
fn records_are_compared() {
    // U032.
    let table: [Row; 12] = [
        (&["- A 1 x"], &[], Err("no records to compare: 1 of the exporter, 0 of the scheduler")),
        (&[], &["A B 1 x"], Err("no records to compare: 0 of the exporter, 1 of the scheduler")),
        // Those that agreed are left out.
        (&["- A 1 x"], &["A A 1 x", "B B 2 x"], Ok("")),
        (&["- A 1 x y"], &["A B 2 x z"], Ok("A!=B found true at 2/1 rte[y] sched[z]")),
        (&["- A 1 x"], &["A A 1 x", "A B 1 x z"], Ok("A!=B found true at 1/1 rte[] sched[z]")),
        // Of several records the newest, of those of one time the last.
        (&["- A 1 x"], &["A B 3 x z", "A C 2 x"], Ok("A!=B found true at 3/1 rte[] sched[z]")),
        (&["- A 1 x"], &["A B 2 x", "A C 3 x z"], Ok("A!=C found true at 3/1 rte[] sched[z]")),
        (&["- A 1 x"], &["A B 2 x", "A C 2 x y"], Ok("A!=C found true at 2/1 rte[] sched[y]")),
        (&["- A 5 x", "- A 4 x y"], &["A B 2 x y"], Ok("A!=B found true at 2/5 rte[] sched[y]")),
        (&["- B 1 x"], &["A C 2 x"], Ok("A!=C found false at 2/- rte[] sched[]")),
        // In the order of time.
        (
            &["- A 1 x"],
            &["B C 4 x", "A C 5 x y", "D C 3 x"],
            Ok(
                "D!=C found false at 3/- rte[] sched[]; B!=C found false at 4/- rte[] sched[]; A!=C found true at 5/1 rte[] sched[y]",
            ),
        ),
        (
            &["- A 1 x y"],
            &["A B 2 y x"],
            Err("the scheduler's fingerprints differ from the exporter's, and the pods do not"),
        ),
    ];
    for (exporter, scheduler, wanted) in table {
        let [exporter, scheduler] =
            [exporter, scheduler].map(|list| list.iter().map(|text| record(text)).collect::<Vec<_>>());
        let outcome = compare(&exporter, &scheduler);
        let shown = outcome.as_ref().map(show);
        assert_eq!(shown.as_deref().map_err(|error| error.as_str()), wanted, "{exporter:?} {scheduler:?}");
    }
}

#[test]
fn differences_are_printed_as_in_go() {
    let outcome = compare(&[record("- A 1 x y")], &[record("A B 2 x z")]).unwrap();
    assert_eq!(
        outcome.differences[0].to_string(),
        "Expected PFP: A\nComputed PFP: B\nFound on RTE: true\n\
         Last write from scheduler: 1970-01-01 00:00:02 +0000 UTC\nLast write from RTE: 1970-01-01 00:00:01 +0000 UTC\n\n\
         Pods found on RTE only:\n - ns/y\nPods found on scheduler only:\n - ns/z\n\n________________________________\n"
    );
}

#[test]
fn files_of_all_writers_are_read() {
    for (text, count) in [
        ("[]", Some(0)),
        (r#"[{"fingerprintComputed":"A","pods":null}]"#, Some(1)),
        (
            r#"{"fingerprintExpected":"A","fingerprintComputed":"A","recordTime":"2025-09-29T06:20:23.6+02:00"}"#,
            Some(1),
        ),
        (r#"[{"pods":[{"Namespace":"a","Name":"b"}],"nodeName":"n","more":1}]"#, Some(1)),
        ("", None),
        ("1", None),
        (r#"[{"pods":1}]"#, None),
        (r#"[{"recordTime":"today"}]"#, None),
        ("[{}", None),
    ] {
        assert_eq!(parse(text).ok().map(|records| records.len()), count, "{text}");
    }
    // What our exporter signs is what is read.
    let mut status = Status::new("a.b");
    status.add("ns", "x");
    let signed = status.sign().to_string();
    let records = parse(&format!("[{}]", status.to_json())).unwrap();
    assert_eq!(
        (records[0].fingerprint_computed.as_str(), records[0].pods[0].name.as_str()),
        (signed.as_str(), "x")
    );
    assert_eq!(records[0].node_name, "a.b");
}

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const RTE: &str = r#"[{"fingerprintComputed":"A","pods":[{"Namespace":"ns","Name":"x"}],"recordTime":"2025-01-01T00:00:00Z"}]"#;
const DIRTY: &str = r#"[{"fingerprintExpected":"A","fingerprintComputed":"B","pods":[],"recordTime":"2025-01-01T00:00:01Z"}]"#;
const CLEAN: &str = r#"[{"fingerprintExpected":"A","fingerprintComputed":"A","pods":[],"recordTime":"2025-01-01T00:00:01Z"}]"#;

#[test]
fn must_gathers_are_checked_node_by_node() {
    let dir = tempfile::tempdir().unwrap();
    let (rte, scheduler) =
        ("mg/namespaces/ns/pfpstatus/resource-topology-exporters", "mg/namespaces/ns/pfpstatus/scheduler");
    write(dir.path(), &format!("{rte}/b"), RTE);
    write(dir.path(), &format!("{rte}/a_x"), RTE);
    write(dir.path(), &format!("{rte}/broken"), "x");
    write(dir.path(), &format!("{rte}/alone"), RTE);
    write(dir.path(), &format!("{scheduler}/b"), CLEAN);
    write(dir.path(), &format!("{scheduler}/a_x"), DIRTY);
    write(dir.path(), &format!("{scheduler}/broken"), DIRTY);
    write(dir.path(), &format!("{scheduler}/lone"), DIRTY);
    write(dir.path(), &format!("{scheduler}/__bXyZ"), "half");
    let report = gathered(dir.path());
    let nodes: Vec<&str> =
        report.text.lines().filter_map(|line| line.strip_prefix("Processing node:  ")).collect();
    assert_eq!(nodes, ["a_x", "b", "broken"]);
    assert_eq!(report.text.matches("Expected PFP: A\nComputed PFP: B\n").count(), 1);
    assert!(report.failed, "one file is broken");
    let has_note = |part: &str| report.notes.iter().any(|note| note.contains(part));
    assert!(
        has_note("node broken: ")
            && has_note("node lone: not checked, no file of its exporter")
            && has_note("node alone: "),
        "{report:?}"
    );
    assert!(has_note("node b: the scheduler always agreed"));
}

fn exit(words: &[&str]) -> ExitCode {
    let call = Call {
        program: "pfpsyncchk".to_owned(),
        arguments: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    run(&call).unwrap()
}

#[test]
fn exit_codes() {
    // U032.
    let dir = tempfile::tempdir().unwrap();
    let at = |file: &str| dir.path().join(file).display().to_string();
    for (file, text) in [("rte", RTE), ("dirty", DIRTY), ("clean", CLEAN), ("empty", ""), ("none", "[]")] {
        write(dir.path(), file, text);
    }
    write(dir.path(), "twice/a/pfpstatus/scheduler/n", DIRTY);
    write(dir.path(), "twice/b/pfpstatus/scheduler/n", DIRTY);
    write(dir.path(), "twice/pfpstatus/resource-topology-exporters/n", RTE);
    write(dir.path(), "half/pfpstatus/scheduler/n", DIRTY);
    let check = |words: &[&str], code: u8| {
        assert_eq!(format!("{:?}", exit(words)), format!("{:?}", ExitCode::from(code)), "{words:?}");
    };
    let pair = |rte: &str, scheduler: &str, code: u8| {
        check(&["-from-rte", &at(rte), "-from-scheduler", &at(scheduler)], code);
    };
    pair("rte", "clean", 0);
    pair("rte", "dirty", 0);
    pair("missing", "dirty", 2);
    pair("rte", "missing", 2);
    pair("empty", "dirty", 2);
    pair("none", "dirty", 2);
    check(&["-from-scheduler", &at("dirty")], 1);
    check(&["-from-rte", &at("rte"), "-must-gather="], 1);
    check(&[], 1);
    check(&["more"], 1);
    check(&["-what"], 1);
    check(&["-h"], 0);
    check(&["-full-help"], 0);
    check(&["-must-gather", &at("twice")], 0);
    check(&["-must-gather", &at("half")], 0);
    // It counts before the files.
    check(&["-must-gather", &at("half"), "-from-rte", &at("missing"), "-from-scheduler", &at("missing")], 0);
    check(&["-must-gather", &at("missing")], 2);
}
