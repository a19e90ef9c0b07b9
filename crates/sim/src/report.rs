//! The result of a simulation as one HTML file, to be sent with a ticket.
//!
//! In: [`Outcome`]s, a heading, sentences. Out: a page with a chart and tables. Never: a script, or anything loaded
//! from elsewhere.

use std::fmt::Write as _;

use crate::chart;
use crate::comparison::Outcome;
use crate::table;

/// Colours follow what the reader prefers; the chart keeps its own paper.
const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --line: #ccc; --soft: #f4f4f4 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181d; --line: #444; --soft: #22252c } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } caption { text-align: left; padding: .3rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem; text-align: right } th:first-child, td:first-child { text-align: left }
thead th { background: var(--soft) } td.text { text-align: left }
.scroll { overflow-x: auto } figure { margin: 1rem 0; background: #fff } svg { max-width: 100%; height: auto }
code { background: var(--soft); padding: .1rem .3rem; overflow-wrap: anywhere }";

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub struct HtmlReport<'a> {
    /// Pods and machines, in a line.
    pub heading: &'a str,
    /// The result in sentences.
    pub verdict: &'a str,
    /// The command line that gives the same result.
    pub command: &'a str,
    /// The results.
    pub outcomes: &'a [Outcome],
}

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Characters that turn the direction of text would show a name as another one.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

impl HtmlReport<'_> {
    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let Self { heading, verdict, command, outcomes } = self;
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>Simulation: {heading}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n\
             <h1>{heading}</h1>\n<p>{verdict}</p>",
            heading = escaped(heading),
            verdict = escaped(verdict),
        );
        let (header, rows) = table::cells(outcomes);
        rows_of(&mut out, "Results", &header, &rows);
        let _ = writeln!(out, "<h2>Over time</h2>\n<figure>\n{}\n</figure>", chart::svg(outcomes, heading));
        let refusals: Vec<Vec<String>> = outcomes.iter().flat_map(refusals).collect();
        if !refusals.is_empty() {
            rows_of(
                &mut out,
                "Pods that were not placed",
                &["Scheduler", "Pods", "First", "Reason"],
                &refusals,
            );
        }
        let _ = writeln!(
            out,
            "<h2>The same again</h2>\n<p><code>{}</code></p>\n<p>tholepin {}. With the same cluster or file the same flags give the same result.</p>\n\
             </main>\n</body>\n</html>",
            escaped(command),
            env!("CARGO_PKG_VERSION")
        );
        out
    }
}

fn refusals(outcome: &Outcome) -> impl Iterator<Item = Vec<String>> + '_ {
    let scheduler = &outcome.summary.scheduler;
    outcome.refusals.iter().map(|refusal| {
        vec![scheduler.clone(), refusal.pods.to_string(), refusal.first.clone(), refusal.reason.clone()]
    })
}

fn rows_of(out: &mut String, title: &str, header: &[&str], rows: &[Vec<String>]) {
    let _ = writeln!(out, "<h2>{title}</h2>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr>");
    header.iter().for_each(|cell| _ = writeln!(out, "<th scope=\"col\">{}</th>", escaped(cell)));
    let _ = writeln!(out, "</tr></thead>\n<tbody>");
    for row in rows {
        let cells = row.iter().map(|cell| {
            let is_number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let class = if is_number { "" } else { " class=\"text\"" };
            format!("<td{class}>{}</td>", escaped(cell))
        });
        let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    let _ = writeln!(out, "</tbody>\n</table>\n</div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Contender, Impairments};
    use crate::machine::Shape;
    use crate::workload::{Arrival, Workload};

    #[test]
    fn a_report_is_one_page_without_scripts() {
        let machines = Shape::even(2, 4).unwrap().machines(1).unwrap();
        let arrivals = [(0, 3), (10, 9)].map(|(at, cpus)| Arrival::new(at, 60_000, cpus)).to_vec();
        let workload = Workload { max_pending: None, arrivals };
        let outcome = Contender::Tholepin.run(&workload, &machines, Impairments::healthy(), 1, &mut |_| {});
        let report = HtmlReport {
            heading: "2 pods on <b>1</b> node",
            verdict: "Tholepin ran 1 of 2 & lost 0.",
            command: "tholepin simulate --from \"a b\"",
            outcomes: &[outcome],
        };
        let html = report.html();
        for words in [
            "<h1>2 pods on &lt;b&gt;1&lt;/b&gt; node</h1>",
            "ran 1 of 2 &amp; lost 0.",
            "<th scope=\"col\">NOT PLACED</th>",
            "<svg ",
            "Pods that were not placed",
            "0/1 nodes are available",
            "<code>tholepin simulate --from &quot;a b&quot;</code>",
        ] {
            assert!(html.contains(words), "{words}: {html}");
        }
        for tag in ["main", "table", "figure", "svg", "html", "body", "div"] {
            let count = |text: &str| html.matches(text).count();
            assert_eq!(count(&format!("<{tag}")), count(&format!("</{tag}>")), "{tag}");
        }
        assert!(
            !html.contains("<script") && !html.contains("<?xml") && !html.contains("http://localhost"),
            "{html}"
        );
    }
}
