//! Results as JUnit XML, for CI systems.
//!
//! In: results of specs. Out: one test suite, as Ginkgo's reporter names its parts. Never: characters that XML 1.0 does
//! not allow; they are replaced.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Case, Ending};

/// The whole file.
#[must_use]
pub fn write(suite: &str, cases: &[Case]) -> String {
    let count = |is: fn(&Ending) -> bool| cases.iter().filter(|case| is(&case.ending)).count();
    let failed = count(|ending| matches!(ending, Ending::Failed { .. }));
    let skipped = count(|ending| matches!(ending, Ending::Skipped { .. }));
    let took: Duration = cases.iter().map(|case| case.took).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let counts = format!(
        "tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.3}\"",
        cases.len(),
        took.as_secs_f64()
    );
    let suite = attribute(suite);
    // Writing to a text cannot fail.
    let _ = writeln!(xml, "<testsuites {counts}>\n  <testsuite name=\"{suite}\" {counts}>");
    for case in cases {
        let (feature, name) = (attribute(&case.feature), attribute(&format!("{} {}", case.id, case.title)));
        let _ = write!(
            xml,
            "    <testcase classname=\"{feature}\" name=\"{name}\" time=\"{:.3}\"",
            case.took.as_secs_f64()
        );
        let _ = match &case.ending {
            Ending::Passed => writeln!(xml, "/>"),
            Ending::Skipped { reason } => {
                writeln!(xml, ">\n      <skipped message=\"{}\"/>\n    </testcase>", attribute(reason))
            }
            Ending::Failed { reason, diagnosis } => writeln!(
                xml,
                ">\n      <failure message=\"{}\" type=\"failed\">{}</failure>\n    </testcase>",
                attribute(reason),
                text(diagnosis)
            ),
        };
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Text between tags.
fn text(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '\n' | '\t' => xml.push(c),
            c if c < ' ' || matches!(c, '\u{FFFE}' | '\u{FFFF}') => xml.push('\u{FFFD}'),
            c => xml.push(c),
        }
    }
    xml
}

/// The value of an attribute: line breaks would become blanks.
fn attribute(value: &str) -> String {
    text(value).replace('"', "&quot;").replace('\n', "&#10;").replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart_and_characters_are_escaped() {
        let case = |name: &str, ending| Case {
            id: name.to_owned(),
            title: "works".to_owned(),
            feature: "tmpol".to_owned(),
            ending,
            took: Duration::from_millis(1500),
        };
        let failed =
            Ending::Failed { reason: "a < b\nc".to_owned(), diagnosis: "\u{1b}[31m & \"x\"".to_owned() };
        let cases = [
            case("a", Ending::Passed),
            case("b \"c\"", Ending::Skipped { reason: "no device".to_owned() }),
            case("d", failed),
        ];
        let wanted = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuites tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"4.500\">\n  \
            <testsuite name=\"serial\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"4.500\">\n    \
            <testcase classname=\"tmpol\" name=\"a works\" time=\"1.500\"/>\n    \
            <testcase classname=\"tmpol\" name=\"b &quot;c&quot; works\" time=\"1.500\">\n      \
            <skipped message=\"no device\"/>\n    </testcase>\n    \
            <testcase classname=\"tmpol\" name=\"d works\" time=\"1.500\">\n      \
            <failure message=\"a &lt; b&#10;c\" type=\"failed\">\u{FFFD}[31m &amp; \"x\"</failure>\n    </testcase>\n  \
            </testsuite>\n</testsuites>\n";
        assert_eq!(write("serial", &cases), wanted);
    }
}
