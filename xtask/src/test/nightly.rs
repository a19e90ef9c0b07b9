//! `cargo xtask nightly`: the long versions of tests that are short in `cargo xtask test`, and their record.
//!
//! In: names of long versions, or none for all. Out: a row for each in docs/figures.md, with commit and date; an error
//! if one fails, after all have run. What each variable does is in docs/rig.md.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::tree::root;
use crate::{browser, image};

/// The page, and the lines around the record.
const PAGE: &str = "docs/figures.md";
/// Pages that long versions write themselves.
const OTHER_PAGES: [&str; 2] = ["docs/e2e.md", "docs/e2e-results.md"];
const BEGIN: &str = "<!-- written by cargo xtask nightly -->";
const END: &str = "<!-- end -->";

/// A long version: a test with variables of the environment, or another chore.
struct Long {
    /// The name on the command line and in the record.
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    /// Arguments for `cargo test`, up to the filter; empty for [`README`].
    test: &'static str,
    /// The beginning of the lines in which the test says what it measured; empty: it measures nothing.
    says: &'static str,
}

const fn long(
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    test: &'static str,
    says: &'static str,
) -> Long {
    Long { name, variables, test, says }
}

/// The value of a variable that stands for the path of the program that is in images. It is built first.
const SHIPPED: &str = "PROGRAM";

/// The value of a variable that stands for the path of the accessibility checker. It and a browser are installed first.
const CHECKER: &str = "CHECKER";

/// The value of a variable that asks for a terminal multiplexer. It is installed first.
const TMUX: &str = "TMUX";

/// In the order in which they run.
const LONG: &[Long] = &[
    long("bad-input", &[("BAD_INPUTS", "5000")], "-p tholepin --test it -- bad_input::", "bad_input: "),
    long("fuzz", &[("FUZZ_SECONDS", "600")], "-p sim --release --lib -- fuzz::", "fuzz: "),
    long(
        "ledger-states",
        &[("MODEL_STATES", "5000000")],
        "-p scheduler --release --lib -- ledger::tests::model_check --include-ignored",
        "model_check: ",
    ),
    long("ledger", &[("PROPTEST_CASES", "100000")], "-p scheduler --release --lib -- ledger::tests", ""),
    long("model", &[("CASES", "20000")], "-p topology --lib -- kubelet::tests", "fits: "),
    long(
        "attack",
        &[("ATTACK_SECONDS", "60"), ("ATTACK_PROGRAM", SHIPPED)],
        "-p tholepin --test it -- attack::",
        "attack: ",
    ),
    long("search", &[("FROM", "0"), ("TO", "100000"), ("COUNT", "1"), ("DOMAIN", "any")], SEARCH, "search: "),
    long("packing", &[("PACKING_SEEDS", "100")], "-p sim --release --lib -- packing::", "packing: "),
    long(
        "starvation",
        &[("STARVATION_SEEDS", "200")],
        "-p sim --release --lib -- starvation::",
        "starvation: ",
    ),
    long(
        "chaos",
        &[("CHAOS", "300"), ("MINUTES", "10")],
        "-p operator --test it -- chaos::",
        "chaos: as it was",
    ),
    long("killed", &[("KILLS", "all")], "-p operator --test it -- killed::", "killed: "),
    long(
        "histories",
        &[("HISTORIES", "200")],
        "-p operator --test it -- hardware::histories::",
        "histories: 200",
    ),
    long("aligned-pods", &[("PODS", "200")], "-p operator --test it -- hardware::whole::", "aligned: "),
    long("sequences", &[("SEQUENCES", "500")], "-p exporter --test it -- sequences::", "sequences: "),
    long("kubelets", &[("ADMISSIONS", "3000")], "-p differential --lib -- real_kubelets", "kubelets: "),
    long("faults", &[("FAULT_ROUNDS", "20")], "-p scheduler --test it -- faults::", "faults: "),
    long(
        "interruptions",
        &[("INTERRUPTIONS", "200")],
        "-p deployer --test it -- install::interrupted::",
        "interrupted: ",
    ),
    long(
        "interrupted-pods",
        &[("INTERRUPTIONS", "20")],
        "-p deployer --test it -- install::whole::",
        "whole: ",
    ),
    long("kubelet-kills", &[("KILLS", "50")], "-p deviceplugin --test it -- kills::", "kill 50: "),
    long(
        "e2e",
        &[("E2E_NETWORK_POLICIES", "1")],
        "-p e2e --test it -- suite::whole --include-ignored",
        "e2e: ",
    ),
    long(
        "e2e-ci",
        &[("E2E_ARGS", "")],
        "-p e2e --test it -- suite::our_stack_passes suite::openshift",
        "e2e: ",
    ),
    long(
        "e2e-interruptions",
        &[("E2E_INTERRUPTIONS", "20")],
        "-p e2e --test it -- suite::our_stack_passes",
        "interrupted: 20 rounds",
    ),
    long(
        "e2e-setup",
        &[("E2E_INTERRUPTIONS", "1")],
        "-p e2e --test it -- suite::made_and_removed",
        "installation: ",
    ),
    long("e2e-contexts", &[], "-p e2e --test it -- contexts:: --include-ignored", "contexts: "),
    long(
        "defects",
        &[("E2E_DEFECTS", "")],
        "-p e2e --test it -- defects::found --include-ignored",
        "defects: ",
    ),
    long(
        "e2e-lag",
        &[("E2E_LAG", "10s"), ("E2E_ARGS", "--tier-up-to=3")],
        "-p e2e --test it -- suite::lagging_exporters",
        "e2e-lag: ",
    ),
    long(
        "differential-1.34",
        &[("KUBERNETES", "1.34"), ("ADMISSIONS", "200000")],
        DIFFERENTIAL,
        "differential: ",
    ),
    long(
        "differential-1.35",
        &[("KUBERNETES", "1.35"), ("ADMISSIONS", "200000")],
        DIFFERENTIAL,
        "differential: ",
    ),
    long(
        "differential-1.36",
        &[("KUBERNETES", "1.36"), ("ADMISSIONS", "1000000")],
        DIFFERENTIAL,
        "differential: ",
    ),
    long(
        "differential-1.37",
        &[("KUBERNETES", "1.37"), ("ADMISSIONS", "200000")],
        DIFFERENTIAL,
        "differential: ",
    ),
    long(
        "differential-scheduler",
        &[("CASES", "20000")],
        "-p differential --release --lib -- kube_schedulers_own_plugins_agree",
        "scheduler: ",
    ),
    long(
        "browser",
        &[("VIEW_REQUIRE_BROWSER", "1"), ("VIEW_AXE", CHECKER)],
        "-p view --test it -- browser::",
        "browser: ",
    ),
    long("terminal", &[("TERMINAL_REQUIRE_TMUX", TMUX)], "-p tholepin --test it -- terminal::", ""),
    long("interop", &[("INTEROP", "1")], "-p xtask -- interop::", "interop: "),
    long("promtool", &[("PROMTOOL", "1")], "-p xtask -- monitoring::promtool", "promtool: "),
    long(README, &[], "", ""),
    long("forgotten", &[("FIVE_MINUTES", "1")], "-p deviceplugin --test it -- alignment::", ""),
];

/// A search of the simulator for pods that tholepin loses.
const SEARCH: &str = "-p sim --release --lib -- --ignored search";

/// The model of the kubelet beside the kubelet's own packages.
const DIFFERENTIAL: &str = "-p differential --release --lib -- the_kubelets_own_packages_agree";

/// The commands of README and quick start, which are no test: `cargo xtask readme`.
const README: &str = "readme";

/// How one ended.
struct Row {
    name: &'static str,
    result: String,
    took: Duration,
}

/// Runs those with these names, or all.
pub(crate) fn run(names: &[String]) -> anyhow::Result<()> {
    let known = || LONG.iter().map(|long| long.name).collect::<Vec<_>>().join(", ");
    if let Some(name) = names.iter().find(|name| LONG.iter().all(|long| long.name != **name)) {
        bail!("{name:?} is no long version; there are {}", known());
    }
    let chosen = LONG.iter().filter(|long| names.is_empty() || names.iter().any(|name| name == long.name));
    let mut failed = Vec::new();
    for long in chosen {
        let row = long.run();
        println!("{}: {} in {} s", row.name, row.result, row.took.as_secs());
        if row.result == FAILED {
            failed.push(long.name);
        }
        record(&root(), &row, &now()?)?;
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

const FAILED: &str = "FAILED";

impl Long {
    fn run(&self) -> Row {
        println!("\n=== {}: {}", self.name, self.command());
        let began = Instant::now();
        if self.name == README {
            let result = crate::readme::report(&crate::readme::Args::default());
            let result = result.inspect_err(|error| eprintln!("error: {error:#}"));
            return Row {
                name: self.name,
                result: result.unwrap_or(FAILED.to_owned()),
                took: began.elapsed(),
            };
        }
        let mut args: Vec<_> = self.test.split(' ').map(Into::into).collect();
        args.extend(["--nocapture".into(), "--test-threads=1".into()]);
        let mut said = Vec::new();
        let mut line = |line: &str| {
            said.extend(self.said(line).map(str::to_owned));
        };
        let result = self.environment().and_then(|env| super::run_with(&args, &env, &mut line));
        if let Err(error) = &result {
            eprintln!("{}: {error:#}", self.name);
        }
        let passed = result.is_ok();
        let result = match passed {
            false => FAILED.to_owned(),
            true if said.is_empty() => "passed".to_owned(),
            true => said.join("; "),
        };
        Row { name: self.name, result, took: began.elapsed() }
    }

    /// The variables with their values.
    fn environment(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let value = |text: &str| -> anyhow::Result<OsString> {
            match text {
                SHIPPED => Ok(image::program()?.into()),
                CHECKER => Ok(browser::install()?.into()),
                TMUX => browser::install_packages("tmux", "-V", &["tmux"]).map(|()| "1".into()),
                _ => Ok(text.into()),
            }
        };
        self.variables.iter().map(|(name, text)| Ok((*name, value(text)?))).collect()
    }

    /// What the test measured, if this line of its output says so. The first line comes after libtest's own words.
    fn said<'l>(&self, line: &'l str) -> Option<&'l str> {
        let after = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
        let line = after.map_or(line, |(_, said)| said);
        let says = !self.says.is_empty() && line.starts_with(self.says);
        // Without the word by which it was found.
        line.split_once(": ").map(|(_, said)| said).filter(|_| says)
    }

    fn command(&self) -> String {
        if self.name == README {
            return "cargo xtask readme".to_owned();
        }
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}cargo xtask test {}", variables.collect::<String>(), self.test)
    }
}

/// Commit and date, as rows carry them.
fn now() -> anyhow::Result<String> {
    let git = |args: &[&str]| -> anyhow::Result<String> {
        let output = std::process::Command::new("git").args(args).current_dir(root()).output();
        Ok(String::from_utf8(output.context("running git")?.stdout)?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    // The records themselves change while the versions run.
    let is_record = |line: &str| [PAGE].iter().chain(&OTHER_PAGES).any(|page| line.ends_with(page));
    let others = git(&["status", "--porcelain"])?.lines().any(|line| !is_record(line));
    let date = jiff::Zoned::now().date();
    Ok(format!("{commit}{}, {date}", if others { " with changes" } else { "" }))
}

/// Writes a row into the page, in place of the one with its name.
fn record(root: &Path, row: &Row, when: &str) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
    fs::write(&path, with_row(&page, row, when)?).with_context(|| PAGE.to_owned())
}

fn with_row(page: &str, row: &Row, when: &str) -> anyhow::Result<String> {
    let missing = || format!("{PAGE} has no line {BEGIN:?} with {END:?} after it");
    let (before, rest) = page.split_once(BEGIN).with_context(missing)?;
    let (table, after) = rest.split_once(END).with_context(missing)?;
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut rows: Vec<String> = rows.filter(|line| name(line) != row.name).map(str::to_owned).collect();
    let long = LONG.iter().find(|long| long.name == row.name).context("an unknown name")?;
    let result = row.result.replace('|', "/");
    rows.push(format!(
        "| `{}` | {result} | {} s | `{}` | {when} |",
        row.name,
        row.took.as_secs(),
        long.command()
    ));
    rows.sort_by_key(|line| LONG.iter().position(|long| long.name == name(line)));
    let head = "| long version | result | took | the same by hand | commit, date |\n|---|---|---|---|---|";
    Ok(format!("{before}{BEGIN}\n\n{head}\n{}\n\n{END}{after}", rows.join("\n")))
}

/// The name in a row.
fn name(line: &str) -> &str {
    line.split('`').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_says_is_found_beside_libtests_words() {
        let long = long("a", &[], "", "a: ");
        assert_eq!(long.said("a: 5 of 5"), Some("5 of 5"));
        assert_eq!(super::long("b", &[], "", "b: as").said("b: as it was"), Some("as it was"));
        assert_eq!(long.said("test a::b ... a: 5 of 5"), Some("5 of 5"));
        assert_eq!(long.said("test a::b ... ok"), None);
        assert_eq!(super::long("b", &[], "", "").said("anything"), None);
    }

    #[test]
    fn a_row_replaces_the_earlier_one_and_the_rest_of_the_page_stays() {
        let row = |name, result: &str| Row { name, result: result.to_owned(), took: Duration::from_secs(3) };
        let page = format!("# A\n\n{BEGIN}\n{END}\n\n## B\n");
        let page = with_row(&page, &row("chaos", "one|two"), "abc, 2026-01-01").unwrap();
        let page = with_row(&page, &row("bad-input", "first"), "abc, 2026-01-01").unwrap();
        let page = with_row(&page, &row("bad-input", "second"), "def, 2026-01-02").unwrap();
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `bad-input` | second | 3 s | `BAD_INPUTS=5000 cargo xtask test -p tholepin --test it -- bad_input::` | \
                 def, 2026-01-02 |",
                "| `chaos` | one/two | 3 s | `CHAOS=300 MINUTES=10 cargo xtask test -p operator --test it -- chaos::` | \
                 abc, 2026-01-01 |",
            ]
        );
        assert!(page.starts_with("# A\n\n") && page.ends_with("\n\n## B\n"), "{page}");
        assert!(with_row("# A\n", &row("chaos", ""), "").is_err());
        let real = fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(with_row(&real, &row("chaos", ""), "").is_ok());
    }
}
