//! Queries over the labels of specs, in Ginkgo's language.
//!
//! In: a query such as `tier0 || (feature: containsAny {tmpol, config} && !slow)`. Out: whether a spec's labels match.
//! Never: a query that is read in another way than Ginkgo 2.28 reads it; what it refuses is refused, at the same place.
//!
//! `,` is `||`; `!` binds before `&&`, and that before `||`. A label matches whole and in any case, `/text/` as a
//! regular expression anywhere in a label. `key: operation {values}` is about the values of labels `key:value`; a colon
//! without a blank after it belongs to the label. Cost of a match: labels times terms of the query.

use std::collections::BTreeSet;
use std::fmt;

use regex_lite::Regex;

/// Characters that end a label.
const ENDS: &str = "&|!,()/";
/// The deepest nesting of parentheses and negations.
const MAX_DEPTH: usize = 64;

/// A query.
#[derive(Clone, Debug)]
pub struct LabelFilter(Option<Expression>);

/// Why a text is no query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The query.
    query: String,
    /// The mistake's place, in characters.
    at: usize,
    mistake: String,
}

impl std::error::Error for SyntaxError {}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label filter {:?}, character {}: {}", self.query, self.at + 1, self.mistake)
    }
}

#[derive(Clone, Debug)]
enum Expression {
    Label(String),
    Pattern(Regex),
    Set { key: String, operation: Operation, values: BTreeSet<String> },
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    IsEmpty,
    ContainsAny,
    ContainsAll,
    ConsistsOf,
    IsSubsetOf,
}

impl Operation {
    const ALL: [(Self, &'static str); 5] = [
        (Self::IsEmpty, "isEmpty"),
        (Self::ContainsAny, "containsAny"),
        (Self::ContainsAll, "containsAll"),
        (Self::ConsistsOf, "consistsOf"),
        (Self::IsSubsetOf, "isSubsetOf"),
    ];

    fn read(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, name)| name.eq_ignore_ascii_case(word))
            .map(|(operation, _)| operation)
    }
}

impl LabelFilter {
    /// Reads a query; an empty one matches everything.
    ///
    /// # Errors
    /// The place of the first mistake, and how to mend it.
    pub fn parse(query: &str) -> Result<Self, SyntaxError> {
        if query.is_empty() {
            return Ok(Self(None));
        }
        let mut parser = Parser { query, text: query.chars().collect(), at: 0, depth: 0 };
        let expression = parser.any()?;
        match parser.peek() {
            None => Ok(Self(Some(expression))),
            Some(')') => Err(parser.error("a closing parenthesis without an opening one")),
            Some(_) => {
                Err(parser.error("an operator is missing between two labels; allowed are &&, || and ,"))
            }
        }
    }

    /// Whether a spec with these labels is wanted.
    pub fn matches<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> bool {
        let labels: Vec<&str> = labels.into_iter().collect();
        self.0.as_ref().is_none_or(|expression| expression.matches(&labels))
    }
}

impl Expression {
    fn matches(&self, labels: &[&str]) -> bool {
        match self {
            Self::Label(wanted) => labels.iter().any(|label| label.to_lowercase() == *wanted),
            Self::Pattern(pattern) => labels.iter().any(|label| pattern.is_match(label)),
            Self::Set { key, operation, values } => {
                let found = values_of(key, labels);
                match operation {
                    Operation::IsEmpty => found.is_empty(),
                    Operation::ContainsAny => !found.is_disjoint(values),
                    Operation::ContainsAll => found.is_superset(values),
                    Operation::ConsistsOf => found == *values,
                    Operation::IsSubsetOf => found.is_subset(values),
                }
            }
            Self::Not(inner) => !inner.matches(labels),
            Self::All(parts) => parts.iter().all(|part| part.matches(labels)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(labels)),
        }
    }
}

/// The values of the labels with this key, in lower case.
fn values_of(key: &str, labels: &[&str]) -> BTreeSet<String> {
    let parts = labels.iter().filter_map(|label| label.split_once(':'));
    let of_key = parts.filter(|(name, _)| name.trim().to_lowercase() == key);
    of_key.map(|(_, value)| value.trim().to_lowercase()).collect()
}

struct Parser<'a> {
    query: &'a str,
    text: Vec<char>,
    /// The next character.
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Expression, SyntaxError> {
        let mut parts = vec![self.all()?];
        while self.takes_operator(&['|', ','])? {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression, SyntaxError> {
        let mut parts = vec![self.one()?];
        while self.takes_operator(&['&'])? {
            parts.push(self.one()?);
        }
        Ok(joined(parts, Expression::All))
    }

    fn one(&mut self) -> Result<Expression, SyntaxError> {
        match self.peek() {
            None => Err(self.error("the query ends where a label is wanted")),
            Some('!') => {
                self.at += 1;
                self.nested(|parser| Ok(Expression::Not(Box::new(parser.one()?))))
            }
            Some('(') => {
                let open = self.at;
                self.at += 1;
                if self.peek() == Some(')') {
                    return Err(self.error("an empty pair of parentheses"));
                }
                let inner = self.nested(Self::any)?;
                if self.peek() != Some(')') {
                    return Err(self.error_at(open, "this parenthesis is not closed"));
                }
                self.at += 1;
                Ok(inner)
            }
            Some('/') => self.pattern(),
            Some('&' | '|' | ',' | ')') => Err(self.error("an operand is missing here")),
            Some(_) => self.label(),
        }
    }

    /// Bounds the recursion: queries come from people and from files.
    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("the query is nested too deeply"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Takes one of the operators that begin so, if it is next.
    fn takes_operator(&mut self, begin: &[char]) -> Result<bool, SyntaxError> {
        let Some(next) = self.peek().filter(|next| begin.contains(next)) else { return Ok(false) };
        if next != ',' {
            if self.text.get(self.at + 1) != Some(&next) {
                return Err(self.error(&format!("{next} is no operator; {next}{next} is")));
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(true)
    }

    fn pattern(&mut self) -> Result<Expression, SyntaxError> {
        let begin = self.at;
        self.at += 1;
        let pattern = self.until("/");
        self.at += 1;
        let regex = Regex::new(&pattern);
        regex
            .map(Expression::Pattern)
            .map_err(|error| self.error_at(begin, &format!("no regular expression: {error}")))
    }

    fn label(&mut self) -> Result<Expression, SyntaxError> {
        let begin = self.at;
        let mut label = self.until("&|!,()/:").trim().to_owned();
        if self.text.get(self.at) == Some(&':') {
            if self.text.get(self.at + 1) == Some(&' ') {
                return self.set(label.to_lowercase());
            }
            let rest = self.until(ENDS);
            if rest.trim() == ":" {
                return Err(self.error_at(begin, "an operation is missing after the colon"));
            }
            label += rest.trim();
        }
        let words = label.split_whitespace().skip(1);
        if let Some(operation) = words.into_iter().find(|word| Operation::read(word).is_some()) {
            return Err(self.error_at(
                begin,
                &format!("{operation} wants a key with a colon before it, such as feature: "),
            ));
        }
        Ok(Expression::Label(label.to_lowercase()))
    }

    /// What follows a key: the parser is at its colon.
    fn set(&mut self, key: String) -> Result<Expression, SyntaxError> {
        if key.is_empty() {
            return Err(self.error("a key is missing before the colon"));
        }
        self.at += 1;
        self.peek();
        let begin = self.at;
        let word = self.until(" )");
        let Some(operation) = Operation::read(&word) else {
            let names = Operation::ALL.map(|(_, name)| name).join(", ");
            return Err(self.error_at(begin, &format!("{word:?} is no operation; allowed are {names}")));
        };
        let argument = self.argument()?;
        if operation == Operation::IsEmpty {
            if !argument.is_empty() {
                return Err(self.error_at(begin, "isEmpty takes no values"));
            }
            return Ok(Expression::Set { key, operation, values: BTreeSet::new() });
        }
        let mut values = BTreeSet::new();
        for value in argument.split(',') {
            let value = value.trim().to_lowercase();
            if value.is_empty() || value.contains(|c| ENDS.contains(c)) {
                return Err(self
                    .error_at(begin, &format!("{word} wants values, such as {{a, b}}; {value:?} is none")));
            }
            values.insert(value);
        }
        Ok(Expression::Set { key, operation, values })
    }

    fn argument(&mut self) -> Result<String, SyntaxError> {
        if self.peek() != Some('{') {
            return Ok(self.until(ENDS).trim().to_owned());
        }
        let open = self.at;
        self.at += 1;
        let values = self.until("}");
        if self.at >= self.text.len() {
            return Err(self.error_at(open, "this brace is not closed"));
        }
        self.at += 1;
        Ok(values)
    }

    /// The next character that is no blank.
    fn peek(&mut self) -> Option<char> {
        while self.text.get(self.at) == Some(&' ') {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Takes everything up to one of these characters.
    fn until(&mut self, ends: &str) -> String {
        let rest = self.text.iter().skip(self.at);
        let taken: String = rest.take_while(|c| !ends.contains(**c)).collect();
        self.at += taken.chars().count();
        taken
    }

    fn error(&self, mistake: &str) -> SyntaxError {
        self.error_at(self.at, mistake)
    }

    fn error_at(&self, at: usize, mistake: &str) -> SyntaxError {
        SyntaxError { query: self.query.to_owned(), at, mistake: mistake.to_owned() }
    }
}

fn joined(mut parts: Vec<Expression>, join: impl FnOnce(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [&str; 5] = ["tier0", "feature:tmpol", "feature: Config", "qos:gu", "Slow"];

    #[test]
    fn queries_match_as_in_ginkgo() {
        for (query, wanted) in [
            ("", true),
            ("tier0", true),
            ("TIER0", true),
            ("tier", false),
            ("/tier[0-2]/", true),
            ("/^slow/", false),
            ("!tier0", false),
            ("!!tier0", true),
            ("tier1 || tier0", true),
            ("tier1, tier0", true),
            ("tier0 && slow", true),
            // && before ||.
            ("tier0 || none && none", true),
            ("(tier0 || none) && none", false),
            ("!none && !(none || tier0)", false),
            ("qos:gu", true),
            ("qos:bu", false),
            ("feature: containsAny {tmpol, cache}", true),
            ("feature: containsAny cache", false),
            ("feature: containsAll {tmpol, config}", true),
            ("feature: containsAll {tmpol, cache}", false),
            ("feature: consistsOf {config, tmpol}", true),
            ("feature: consistsOf {tmpol}", false),
            ("feature: isSubsetOf {config, tmpol, cache}", true),
            ("qos: ISSUBSETOF {bu}", false),
            ("none: isSubsetOf {bu}", true),
            ("none: isEmpty", true),
            ("(qos: isEmpty)", false),
            ("feature: containsAny {tmpol} && !slow", false),
            ("feature: containsAny tmpol && slow", true),
        ] {
            let filter = LabelFilter::parse(query).unwrap();
            assert_eq!(filter.matches(LABELS), wanted, "{query}");
        }
    }

    #[test]
    fn mistakes_have_a_place_and_a_way_out() {
        for (query, wanted) in [
            (" ", "character 2: the query ends"),
            ("a &", "character 3: & is no operator; && is"),
            ("a && ", "character 6: the query ends"),
            ("a | b", "character 3: | is no operator"),
            ("|| a", "character 1: an operand is missing"),
            ("(a", "character 1: this parenthesis is not closed"),
            ("a)", "character 2: a closing parenthesis"),
            ("()", "character 2: an empty pair"),
            ("a (b)", "character 3: an operator is missing"),
            ("/(/", "character 1: no regular expression"),
            ("key: contains {a}", "\"contains\" is no operation; allowed are isEmpty, containsAny"),
            ("key: containsAny {a", "this brace is not closed"),
            ("key: containsAny", "containsAny wants values"),
            ("key: containsAny {a,}", "containsAny wants values"),
            ("key: isEmpty {a}", "isEmpty takes no values"),
            ("key containsAny {a}", "containsAny wants a key"),
            (": containsAny {a}", "a key is missing"),
            ("key:", "an operation is missing"),
        ] {
            let error = LabelFilter::parse(query).unwrap_err().to_string();
            assert!(error.contains(wanted), "{query}: {error}");
        }
        let deep = "!".repeat(10_000) + "a";
        assert!(LabelFilter::parse(&deep).unwrap_err().to_string().contains("nested too deeply"));
    }
}
