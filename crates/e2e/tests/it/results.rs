//! The runs on several rigs as one result.
//!
//! In: the documents that `tholepin e2e -o json` prints. Out: how each spec ended over all of them, as a page and a
//! line. Never: a failure that another run makes up for.

use std::fmt::Write as _;
use std::time::Duration;

use e2e::catalogue;
use e2e::spec::Spec;
use serde_json::Value;

use super::page;

/// The page of the results.
const PAGE: &str = "docs/e2e-results.md";

/// Runs, in the order in which they were made.
#[derive(Default)]
pub(crate) struct Results(Vec<Run>);

/// A run on one rig.
struct Run {
    rig: String,
    arguments: String,
    document: Value,
}

/// How a spec ended over all runs.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// On these rigs, and nowhere otherwise than skipped.
    Passed(Vec<String>),
    /// On all rigs on which it was chosen; why on the first.
    Skipped(String),
    /// At least once.
    Failed(String),
}

impl Results {
    /// Adds a run.
    pub(crate) fn add(&mut self, rig: &str, arguments: &str, document: Value) {
        self.0.push(Run { rig: rig.to_owned(), arguments: arguments.to_owned(), document });
    }

    /// Adds the runs of others, behind its own.
    pub(crate) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// How a spec ended; a spec that no run chose counts as skipped.
    fn of(&self, id: &str) -> Ending {
        let (mut passed, mut skipped) = (Vec::new(), None);
        for Run { rig, document, .. } in &self.0 {
            let specs = document["specs"].as_array().unwrap();
            for case in specs.iter().filter(|case| case["id"] == id) {
                let reason = case["reason"].as_str().unwrap_or_default();
                match case["ending"].as_str().unwrap() {
                    "passed" => passed.push(rig.clone()),
                    "skipped" => skipped = skipped.or_else(|| Some(format!("{rig}: {reason}"))),
                    ending => return Ending::Failed(format!("{rig}: {ending}: {reason}")),
                }
            }
        }
        match passed.is_empty() {
            true => Ending::Skipped(skipped.unwrap_or_else(|| "no run chose it".to_owned())),
            false => Ending::Passed(passed),
        }
    }

    fn endings(&self) -> Vec<(Spec, Ending)> {
        let all = catalogue::all().into_iter();
        all.map(|spec| {
            let ending = self.of(&spec.id);
            (spec, ending)
        })
        .collect()
    }

    /// The page, and the line that sums it up.
    fn page(&self, when: &str, took: Duration) -> (String, String) {
        let endings = self.endings();
        let count = |is: fn(&Ending) -> bool| endings.iter().filter(|(_, ending)| is(ending)).count();
        let passed = count(|ending| matches!(ending, Ending::Passed(_)));
        let skipped = count(|ending| matches!(ending, Ending::Skipped(_)));
        let failed = count(|ending| matches!(ending, Ending::Failed(_)));
        let all = endings.len();
        let seconds = took.as_secs();
        let share = 100.0 * skipped as f64 / all as f64;
        let line = format!(
            "{all} specs: {passed} passed on a rig, {skipped} ({share:.1} %) skipped on every rig, {failed} failed; \
             {seconds} s in all, with making the clusters"
        );
        let mut text = format!(
            "# Results of the end-to-end tests\n\nWritten by `cargo xtask nightly e2e` ({when}). {line}.\n\nA spec \
             that failed on any rig has failed; one that passed on a rig and was skipped on others has passed.\n\n\
             | rig | arguments | passed | skipped | failed | seconds |\n|---|---|---|---|---|---|\n"
        );
        for Run { rig, arguments, document } in &self.0 {
            let counts = &document["counts"];
            let seconds = document["seconds"].as_f64().unwrap();
            let (passed, skipped, failed) = (&counts["passed"], &counts["skipped"], &counts["failed"]);
            let arguments = arguments.replace('|', "\\|");
            writeln!(text, "| {rig} | `{arguments}` | {passed} | {skipped} | {failed} | {seconds:.0} |")
                .unwrap();
        }
        text.push_str("\n| id | feature | result | where; or what it needs |\n|---|---|---|---|\n");
        for (spec, ending) in endings {
            let (word, detail) = match ending {
                Ending::Passed(rigs) => ("passed", rigs.join(", ")),
                Ending::Skipped(reason) => ("skipped", reason),
                Ending::Failed(reason) => ("FAILED", reason),
            };
            let detail = detail.replace('|', "/").replace('\n', " ");
            writeln!(text, "| {} | {} | {word} | {detail} |", spec.id, spec.feature).unwrap();
        }
        (text, line)
    }

    /// Writes the page, and prints the line. `took`: from the first cluster to the end.
    pub(crate) fn write(&self, took: Duration) {
        let (text, line) = self.page(&page::when(), took);
        page::write(PAGE, &text);
        println!("e2e: {line}");
    }
}

#[test]
fn the_best_of_the_rigs_counts_and_a_failure_always() {
    use serde_json::json;
    let case = |id: &str, ending: &str| json!({ "id": id, "ending": ending, "reason": "why" });
    let document = |cases: &[Value]| json!({ "specs": cases, "seconds": 1.0, "counts": {} });
    let mut results = Results::default();
    results.add(
        "a",
        "",
        document(&[case("1", "passed"), case("2", "skipped"), case("3", "failed"), case("4", "skipped")]),
    );
    results.add("b", "", document(&[case("2", "passed"), case("3", "passed"), case("4", "skipped")]));
    let table = [
        ("1", Ending::Passed(vec!["a".to_owned()])),
        ("2", Ending::Passed(vec!["b".to_owned()])),
        ("3", Ending::Failed("a: failed: why".to_owned())),
        ("4", Ending::Skipped("a: why".to_owned())),
        ("5", Ending::Skipped("no run chose it".to_owned())),
    ];
    for (id, wanted) in table {
        assert_eq!(results.of(id), wanted, "{id}");
    }
}
