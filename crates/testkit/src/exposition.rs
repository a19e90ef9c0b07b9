//! Metrics as a scrape shows them.
//!
//! In: Prometheus' plain text or OpenMetrics. Out: families with the names, labels and help that queries and readers
//! see. Never: a value.

use std::collections::{BTreeMap, BTreeSet};

/// A family of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The meaning.
    pub help: String,
    /// Names of its samples; a histogram has several.
    pub samples: BTreeSet<String>,
    /// Names of labels; without `le` of histograms.
    pub labels: BTreeSet<String>,
}

/// The families by the names that queries use: those of counters end in `_total`.
#[must_use]
pub fn families(text: &str) -> BTreeMap<String, Family> {
    // Plain text has no end mark, and names counters as their samples.
    let is_open = text.lines().any(|line| line == "# EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut help = "";
    let mut current = String::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), Some(rest)) => help = rest.trim_end_matches('.'),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let end = if is_open && kind == "counter" { "_total" } else { "" };
                current = format!("{name}{end}");
                let family = families.entry(current.clone()).or_default();
                kind.clone_into(&mut family.kind);
                help.clone_into(&mut family.help);
            }
            (Some("#"), ..) => {}
            _ => {
                let (name, labels) = sample(line);
                if let Some(family) = families.get_mut(&current) {
                    family.samples.insert(name);
                    family.labels.extend(labels.into_iter().filter(|label| label != "le"));
                }
            }
        }
    }
    families
}

/// Checks that each family that a process serves is in its specimen, with the same labels and meaning. What has not
/// happened yet is not served.
///
/// # Panics
/// When one is missing or another.
#[track_caller]
pub fn assert_known(served: &str, specimen: &str) {
    let (served, known) = (families(served), families(specimen));
    assert!(!served.is_empty(), "nothing is served");
    for (name, family) in &served {
        assert_eq!(Some(family), known.get(name), "{name}");
    }
}

/// Name and names of labels of a sample.
fn sample(line: &str) -> (String, Vec<String>) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let name = line[..end].to_owned();
    let mut labels = Vec::new();
    let mut rest = line[end..].strip_prefix('{').unwrap_or_default();
    while let Some((label, value)) = rest.split_once("=\"") {
        labels.push(label.trim_start_matches(',').to_owned());
        // A quote within a value has an odd number of backslashes before it.
        let mut escaped = false;
        let closes = value.char_indices().find(|(_, c)| {
            let is_end = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        let Some((at, _)) = closes else { break };
        rest = &value[at + 1..];
        if rest.starts_with('}') {
            break;
        }
    }
    (name, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_have_the_same_families() {
        let open = "# HELP writes Writes.\n# TYPE writes counter\nwrites_total{node=\"a}=\\\"b\",code=\"1\"} 3\n\
                    # HELP took_seconds Time.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                    took_seconds_sum 1\ntook_seconds_count 1\ntook_seconds_bucket{le=\"1.0\"} 1\n# EOF\n";
        let plain = open.replace("writes ", "writes_total ").replace("# EOF\n", "");
        let got = families(open);
        assert_eq!(got, families(&plain));
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let names: Vec<&str> = got.keys().map(String::as_str).collect();
        assert_eq!(names, ["took_seconds", "writes_total"]);
        assert_eq!(got["writes_total"].labels, set(&["node", "code"]));
        assert_eq!((&*got["writes_total"].kind, &*got["writes_total"].help), ("counter", "Writes"));
        let samples = ["took_seconds_sum", "took_seconds_count", "took_seconds_bucket"];
        assert_eq!((&got["took_seconds"].samples, &got["took_seconds"].labels), (&set(&samples), &set(&[])));
    }
}
