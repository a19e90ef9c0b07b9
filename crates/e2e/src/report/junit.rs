//! Results as JUnit XML, for CI systems.
//!
//! In: results of specs. Out: one test suite, as Ginkgo's reporter names its parts. Never: characters that XML 1.0 does
//! not allow; they are replaced.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Case, Ending};

/// The whole file: a suite for each name.
#[must_use]
pub fn write(suites: &[(String, &[Case])]) -> String {
    let all = counts(suites.iter().flat_map(|(_, cases)| *cases));
    let mut xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {all}>\n");
    for (name, cases) in suites {
        // Writing to a text cannot fail.
        _ = writeln!(xml, "  <testsuite name=\"{}\" {}>", attribute(name), counts(*cases));
        cases.iter().for_each(|case| test_case(&mut xml, case));
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// The attributes that count cases.
fn counts<'c>(cases: impl IntoIterator<Item = &'c Case>) -> String {
    let (mut tests, mut failed, mut skipped, mut took) = (0, 0, 0, Duration::ZERO);
    for case in cases {
        tests += 1;
        took += case.took;
        match case.ending {
            Ending::Passed => {}
            Ending::Failed { .. } => failed += 1,
            Ending::Skipped { .. } | Ending::NotTried { .. } => skipped += 1,
        }
    }
    let seconds = took.as_secs_f64();
    format!(
        "tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{seconds:.3}\""
    )
}

fn test_case(xml: &mut String, case: &Case) {
    let (feature, name) = (attribute(&case.feature), attribute(&format!("{} {}", case.id, case.title)));
    let seconds = case.took.as_secs_f64();
    _ = write!(xml, "    <testcase classname=\"{feature}\" name=\"{name}\" time=\"{seconds:.3}\"");
    _ = match &case.ending {
        Ending::Passed => writeln!(xml, "/>"),
        Ending::Skipped { reason } | Ending::NotTried { reason } => {
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
        assert_eq!(write(&[("serial".to_owned(), &cases)]), wanted);
    }
}
