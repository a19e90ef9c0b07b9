//! A record of what went into a fingerprint, for people and their tools, in the peers' format.
//!
//! In: pods in the order in which they are visited, and a fingerprint to compare with. Out: the fingerprint, and its
//! record as one line of JSON or a few lines of text, to the byte as the peers write them. Never: another order than
//! that of the calls.

use std::fmt::{self, Write as _};

use super::{Fingerprint, FingerprintError, PodHash};

/// A record of one fingerprint. Two are equal when they name the same node, fingerprints and pods in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    node: String,
    pods: Vec<(String, String)>,
    hashes: Vec<PodHash>,
    computed: Option<Fingerprint>,
    expected: String,
}

impl Status {
    /// An empty record for a node, whose name may be empty.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Adds a pod; one that is added twice counts twice.
    pub fn add(&mut self, namespace: &str, name: &str) {
        self.hashes.push(PodHash::of(namespace, name));
        self.pods.push((namespace.to_owned(), name.to_owned()));
    }

    /// Signs the pods added so far. More may follow, and the next fingerprint covers them too.
    pub fn sign(&mut self) -> Fingerprint {
        let computed = Fingerprint::of(&mut self.hashes);
        self.computed = Some(computed);
        computed
    }

    /// Signs, and compares with an expected fingerprint.
    ///
    /// # Errors
    /// As [`Fingerprint::check`].
    pub fn check(&mut self, expected: &str) -> Result<(), FingerprintError> {
        self.expected = expected.to_owned();
        self.sign().check(expected)
    }

    /// The node's name.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The pods, as (namespace, name).
    pub fn pods(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.pods.iter().map(|(namespace, name)| (namespace.as_str(), name.as_str()))
    }

    /// One line of JSON without spaces: `fingerprintExpected`, `fingerprintComputed`, `pods` (of `Namespace` and
    /// `Name`) and `nodeName`, each left out when empty.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = "{".to_owned();
        let mut field = |name: &str, write: &dyn Fn(&mut String)| {
            let _ = write!(json, "{}\"{name}\":", if json.len() > 1 { "," } else { "" });
            write(&mut json);
        };
        if !self.expected.is_empty() {
            field("fingerprintExpected", &|json| string(json, &self.expected));
        }
        if let Some(computed) = self.computed {
            field("fingerprintComputed", &|json| string(json, &computed.to_string()));
        }
        if !self.pods.is_empty() {
            field("pods", &|json| self.list(json));
        }
        if !self.node.is_empty() {
            field("nodeName", &|json| string(json, &self.node));
        }
        json.push('}');
        json
    }

    fn list(&self, json: &mut String) {
        for (at, (namespace, name)) in self.pods.iter().enumerate() {
            json.push_str(if at == 0 { "[{\"Namespace\":" } else { ",{\"Namespace\":" });
            string(json, namespace);
            json.push_str(",\"Name\":");
            string(json, name);
            json.push('}');
        }
        json.push(']');
    }
}

impl fmt::Display for Status {
    /// Writes the peers' trace, one item per line: the node (quoted as Go does), the number of pods, each pod, the
    /// computed fingerprint, and the expected one if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "> processing node {}", quoted(&self.node))?;
        writeln!(f, "> processing {} pods", self.pods.len())?;
        for (namespace, name) in &self.pods {
            writeln!(f, "+ {namespace}/{name}")?;
        }
        f.write_str("= ")?;
        if let Some(computed) = self.computed {
            write!(f, "{computed}")?;
        }
        writeln!(f)?;
        if !self.expected.is_empty() {
            writeln!(f, "V {}", self.expected)?;
        }
        Ok(())
    }
}

/// The name of the file with a node's records, in the directory that `PFP_STATUS_DUMP` names. The peers' readers find a
/// node by it.
#[must_use]
pub fn file_name(node: &str) -> String {
    node.replace('.', "_")
}

/// Appends a JSON string as Go's encoder does: characters that are unsafe in HTML or JavaScript are escaped too.
fn string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..=' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if c != ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            _ => json.push(c),
        }
    }
    json.push('"');
}

/// Quotes a text as Go's `%q` does.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        let code = u32::from(c);
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            '\u{7}' => write!(quoted, "\\a"),
            '\u{8}' => write!(quoted, "\\b"),
            '\u{c}' => write!(quoted, "\\f"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            '\u{b}' => write!(quoted, "\\v"),
            _ if c.is_ascii_control() => write!(quoted, "\\x{code:02x}"),
            _ if is_printable(c) => write!(quoted, "{c}"),
            _ if code < 0x1_0000 => write!(quoted, "\\u{code:04x}"),
            _ => write!(quoted, "\\U{code:08x}"),
        };
    }
    quoted.push('"');
    quoted
}

/// Whether a character is printable, by the standard library's tables. A combining mark is tested after a letter, as Go
/// does.
fn is_printable(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || ['a', c].iter().collect::<String>().escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(node: &str, pods: &[&str]) -> Status {
        let mut status = Status::new(node);
        for pod in pods {
            let (namespace, name) = pod.split_once('/').unwrap();
            status.add(namespace, name);
        }
        status
    }

    const FIVE: [&str; 5] = ["ns1/n1", "ns1/n2", "ns2/n1", "ns3/n1", "ns3/n2"];

    #[test]
    fn json_equals_the_peers() {
        let mut five = status("", &FIVE);
        assert_eq!(five.sign().to_string(), "pfp0v001b92008c14168b3a6");
        assert_eq!(five.check("pfp0v001b92008c14168b3a6"), Ok(()));
        assert_eq!(
            five.to_json(),
            concat!(
                r#"{"fingerprintExpected":"pfp0v001b92008c14168b3a6","#,
                r#""fingerprintComputed":"pfp0v001b92008c14168b3a6","#,
                r#""pods":[{"Namespace":"ns1","Name":"n1"},{"Namespace":"ns1","Name":"n2"},"#,
                r#"{"Namespace":"ns2","Name":"n1"},{"Namespace":"ns3","Name":"n1"},{"Namespace":"ns3","Name":"n2"}]}"#
            )
        );
        assert_eq!(Status::default().to_json(), "{}");
        assert_eq!(status("a.b", &[]).to_json(), r#"{"nodeName":"a.b"}"#);
        let mut none = status("a", &[]);
        none.sign();
        assert_eq!(none.to_json(), r#"{"fingerprintComputed":"pfp0v001ef46db3751d8e999","nodeName":"a"}"#);
        assert_eq!(
            status("<\"\\&\u{1}\u{8}\u{c}\n\r\t\u{7f}\u{2028} \u{e9}", &["'/>"]).to_json(),
            "{\"pods\":[{\"Namespace\":\"'\",\"Name\":\"\\u003e\"}],\
             \"nodeName\":\"\\u003c\\\"\\\\\\u0026\\u0001\\b\\f\\n\\r\\t\u{7f}\\u2028 \u{e9}\"}"
        );
    }

    #[test]
    fn text_equals_the_peers() {
        let mut some = status("node-0.example", &["ns2/n1", "ns1/n1"]);
        assert_eq!(
            some.to_string(),
            "> processing node \"node-0.example\"\n> processing 2 pods\n+ ns2/n1\n+ ns1/n1\n= \n"
        );
        let computed = some.sign();
        assert!(some.check("x").is_err());
        assert_eq!(
            some.to_string(),
            format!(
                "> processing node \"node-0.example\"\n> processing 2 pods\n+ ns2/n1\n+ ns1/n1\n= {computed}\nV x\n"
            )
        );
    }

    #[test]
    fn nodes_are_quoted_as_go_does() {
        for (text, wanted) in [
            ("", r#""""#),
            ("a'b", r#""a'b""#),
            ("a\"\\", r#""a\"\\""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\u{0}\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{e9}\u{4e16}\u{301}", "\"\u{e9}\u{4e16}\u{301}\""),
            ("\u{a0}\u{feff}\u{e000}", r#""\u00a0\ufeff\ue000""#),
            ("\u{10ffff}\u{e0001}", r#""\U0010ffff\U000e0001""#),
        ] {
            assert_eq!(quoted(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn order_is_kept_and_every_field_counts() {
        let mut first = status("a", &["b/2", "a/1"]);
        first.sign();
        let mut copy = first.clone();
        assert_eq!(copy, first);
        assert_eq!(copy.pods().collect::<Vec<_>>(), [("b", "2"), ("a", "1")]);
        copy.add("c", "3");
        assert_ne!(copy, first);
        assert_eq!(first.pods().len(), 2);
        let mut turned = status("a", &["a/1", "b/2"]);
        assert_eq!(turned.sign(), first.sign());
        assert_ne!(turned, first);
        let mut elsewhere = status("b", &["b/2", "a/1"]);
        elsewhere.sign();
        assert_ne!(elsewhere, first);
        let mut checked = first.clone();
        let _ = checked.check("x");
        assert_ne!(checked, first);
        assert_ne!(status("a", &["b/2", "a/1"]), first);
    }

    /// Signing sorts the hashes; pods added after it still come last, and the fingerprint covers all of them.
    #[test]
    fn pods_can_be_added_after_signing() {
        let mut growing = Status::new("");
        for (at, pod) in FIVE.iter().enumerate() {
            let (namespace, name) = pod.split_once('/').unwrap();
            growing.add(namespace, name);
            let mut whole = status("", &FIVE[..=at]);
            assert_eq!(growing.sign(), whole.sign(), "{at}");
            assert_eq!(growing.to_json(), whole.to_json(), "{at}");
        }
    }
}
