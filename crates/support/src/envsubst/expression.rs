//! One expression, from `${` to its closing brace. Pure.
//!
//! In: a line, the start of an expression, the variables. Out: the result, and the end of the expression. Never: more
//! than a few levels of nesting.

use super::Malformed;

/// Most levels of nested expressions.
const MAX_DEPTH: usize = 32;
/// Longest value on which patterns are tried, since they are tried at each of its characters.
const MAX_MATCHED: usize = 64 << 10;

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;
/// A change of a value.
type Change = Box<dyn Fn(&str) -> String>;
/// A change of case.
type Case = fn(&str) -> String;

/// Reads an expression from left to right.
struct Reader<'a> {
    line: &'a str,
    /// Start of the expression.
    start: usize,
    at: usize,
    lookup: Lookup<'a>,
    depth: usize,
}

/// Evaluates the expression at byte `start` of the line. Returns the result, and the offset of the text that follows.
pub(super) fn evaluate(
    line: &str,
    start: usize,
    lookup: Lookup<'_>,
    depth: usize,
) -> Result<(String, usize), Malformed> {
    let mut reader = Reader { line, start, at: start + 2, lookup, depth };
    if depth > MAX_DEPTH {
        return Err(reader.wrong("expressions are nested too deeply"));
    }
    let value = reader.expression()?;
    let end = reader.at;
    let source = || line.get(start..end).unwrap_or_default().to_owned();
    Ok((value.unwrap_or_else(source), end))
}

impl Reader<'_> {
    /// The result; `None`: the expression stays unchanged.
    fn expression(&mut self) -> Result<Option<String>, Malformed> {
        if self.take("#") {
            let name = self.name()?;
            self.end()?;
            return Ok((self.lookup)(&name).map(|value| value.len().to_string()));
        }
        let name = self.name()?;
        let value = (self.lookup)(&name);
        if self.take("}") {
            return Ok(value);
        }
        for (sign, of_empty) in [(":-", true), (":=", true), ("-", false), ("=", false)] {
            if self.take(sign) {
                let default = self.argument(&[])?;
                let counts = value.filter(|value| !(of_empty && value.is_empty()));
                return Ok(Some(counts.unwrap_or(default)));
            }
        }
        for (sign, of_empty) in [(":+", true), ("+", false)] {
            if self.take(sign) {
                let other = self.argument(&[])?;
                let counts = value.filter(|value| !(of_empty && value.is_empty()));
                return Ok(Some(counts.map(|_| other).unwrap_or_default()));
            }
        }
        let change = self.change()?;
        Ok(value.map(|value| change(&value)))
    }

    /// The change of the value.
    fn change(&mut self) -> Result<Change, Malformed> {
        let cases: [(&str, Case); 4] =
            [("^^", str::to_uppercase), (",,", str::to_lowercase), ("^", upper_first), (",", lower_first)];
        for (sign, case) in cases {
            if self.take(sign) {
                self.end()?;
                return Ok(Box::new(case));
            }
        }
        for (sign, at_end, longest) in
            [("##", false, true), ("#", false, false), ("%%", true, true), ("%", true, false)]
        {
            if self.take(sign) {
                let pattern = self.pattern()?;
                return Ok(Box::new(move |value| without(value, &pattern, at_end, longest)));
            }
        }
        for (sign, occurrence) in [
            ("//", Occurrence::Every),
            ("/#", Occurrence::Start),
            ("/%", Occurrence::End),
            ("/", Occurrence::First),
        ] {
            if self.take(sign) {
                let old = self.argument(&['/'])?;
                let new = if self.ended() { String::new() } else { self.argument(&[])? };
                return Ok(Box::new(move |value| occurrence.replace(value, &old, &new)));
            }
        }
        if self.take(":") {
            let from = self.argument(&[':'])?;
            let length = if self.ended() { None } else { Some(self.argument(&[])?) };
            let number = |text: &str| text.trim().parse::<i64>().ok();
            let from = number(&from).ok_or_else(|| self.wrong("the offset is not a number"))?;
            let length = length.map(|text| number(&text).filter(|&length| length >= 0));
            if length == Some(None) {
                return Err(self.wrong("the length is not a number of zero or more"));
            }
            return Ok(Box::new(move |value| part(value, from, length.flatten())));
        }
        Err(self.wrong("unknown expression; allowed after the name are } ^ , : # % / - = +"))
    }

    fn wrong(&self, reason: &'static str) -> Malformed {
        Malformed { at: self.start, reason }
    }

    fn rest(&self) -> &str {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = self.rest().starts_with(sign);
        if is {
            self.at += sign.len();
        }
        is
    }

    fn end(&mut self) -> Result<(), Malformed> {
        if self.take("}") { Ok(()) } else { Err(self.wrong("} is missing")) }
    }

    /// Whether the last argument ended the expression.
    fn ended(&self) -> bool {
        self.line.as_bytes().get(self.at.wrapping_sub(1)) == Some(&b'}')
    }

    fn name(&mut self) -> Result<String, Malformed> {
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let rest = self.rest();
        let name = rest[..rest.find(|c| !letter(c)).unwrap_or(rest.len())].to_owned();
        if name.is_empty() {
            return Err(self.wrong("a name of letters, digits and _ is missing"));
        }
        self.at += name.len();
        Ok(name)
    }

    /// The text up to the form's end or one of these characters, which is taken too. Forms in it are replaced.
    fn argument(&mut self, ends: &[char]) -> Result<String, Malformed> {
        self.read(ends, |text, c| text.push(c))
    }

    /// As an argument, but what `\\` made ordinary is so for patterns too.
    fn pattern(&mut self) -> Result<String, Malformed> {
        self.read(&[], |text, c| text.extend(['\\', c]))
    }

    fn read(
        &mut self,
        ends: &[char],
        mut escaped: impl FnMut(&mut String, char),
    ) -> Result<String, Malformed> {
        let mut text = String::new();
        loop {
            if self.rest().starts_with("${") {
                let (value, end) = evaluate(self.line, self.at, self.lookup, self.depth + 1)?;
                text.push_str(&value);
                self.at = end;
                continue;
            }
            let Some(c) = self.rest().chars().next() else { return Err(self.wrong("} is missing")) };
            self.at += c.len_utf8();
            match c {
                '}' => return Ok(text),
                '\\' => {
                    let Some(c) = self.rest().chars().next() else { return Err(self.wrong("} is missing")) };
                    self.at += c.len_utf8();
                    escaped(&mut text, c);
                }
                c if ends.contains(&c) => return Ok(text),
                c => text.push(c),
            }
        }
    }
}

/// The occurrences to replace.
#[derive(Clone, Copy)]
enum Occurrence {
    First,
    Every,
    Start,
    End,
}

impl Occurrence {
    fn replace(self, value: &str, old: &str, new: &str) -> String {
        let whole = || value.to_owned();
        match self {
            // An empty text occurs nowhere.
            _ if old.is_empty() => whole(),
            Self::First => value.replacen(old, new, 1),
            Self::Every => value.replace(old, new),
            Self::Start => value.strip_prefix(old).map_or_else(whole, |rest| format!("{new}{rest}")),
            Self::End => value.strip_suffix(old).map_or_else(whole, |rest| format!("{rest}{new}")),
        }
    }
}

fn upper_first(value: &str) -> String {
    let mut letters = value.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn lower_first(value: &str) -> String {
    let mut letters = value.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The part of a value from a byte offset on, with at most `length` bytes. Letters cut in the middle are left out.
fn part(value: &str, from: i64, length: Option<i64>) -> String {
    let size = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let from = if from < 0 { size.saturating_add(from).max(0) } else { from.min(size) };
    let to = length.map_or(size, |length| from.saturating_add(length).min(size));
    let inside = |at: usize| i64::try_from(at).is_ok_and(|at| at >= from);
    let before = |end: usize| i64::try_from(end).is_ok_and(|end| end <= to);
    value.char_indices().filter(|(at, c)| inside(*at) && before(at + c.len_utf8())).map(|(_, c)| c).collect()
}

/// The value without the match of a pattern at its start or end. An empty match does not count.
fn without(value: &str, pattern: &str, at_end: bool, longest: bool) -> String {
    if value.len() > MAX_MATCHED {
        return value.to_owned();
    }
    // The glob matcher treats `/` as a separator; here it is an ordinary character.
    let flat = |text: &str| text.replace('/', "\u{1}");
    let (flat_value, pattern) = (flat(value), flat(pattern));
    let mut cuts: Vec<usize> = value.char_indices().map(|(at, _)| at).chain([value.len()]).collect();
    // From short matches to long ones.
    if at_end {
        cuts.reverse();
    }
    if longest {
        cuts.reverse();
    }
    let matched = cuts.into_iter().find_map(|cut| {
        let (start, end) = flat_value.split_at_checked(cut)?;
        let (part, rest) = if at_end { (end, value.get(..cut)?) } else { (start, value.get(cut..)?) };
        (!part.is_empty() && runtime::glob::matches(&pattern, part)).then_some(rest)
    });
    matched.unwrap_or(value).to_owned()
}
