//! Durations in Go's text form (`1h30m0s`, `250ms`), as Kubernetes configuration files and annotations carry them.
//!
//! In: text. Out: signed nanoseconds, and Go's own text for them. Never: any other grammar (`1d`, ISO 8601, bare
//! numbers), nor a panic on overflow.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signed span of nanoseconds, as Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoDurationError {
    /// Text other than numbers with units.
    #[error("invalid duration {0:?}: expected numbers with units, such as 300ms, 10s or 1h30m")]
    Form(String),
    /// A number without a unit.
    #[error("missing unit in duration {0:?}; allowed are ns, us, ms, s, m and h")]
    MissingUnit(String),
    /// An unknown unit.
    #[error("unknown unit {unit:?} in duration {text:?}; allowed are ns, us, ms, s, m and h")]
    UnknownUnit {
        /// The unit found, shortened.
        unit: String,
        /// The whole text, shortened.
        text: String,
    },
    /// A duration of more than about 292 years.
    #[error("duration {0:?} is out of range; the largest is 2562047h47m16.854775807s")]
    Range(String),
}

const SECOND: u64 = 1_000_000_000;
/// The magnitude of the most negative duration.
const MAX: u64 = 1 << 63;

impl GoDuration {
    /// Reads a value of the command line that must be above zero.
    ///
    /// # Errors
    /// The text and what is allowed.
    pub fn positive(text: &str) -> Result<std::time::Duration, String> {
        let read = Self::parse(text).ok().and_then(Self::to_std).filter(|time| !time.is_zero());
        read.ok_or_else(|| format!("{text:?} is not a duration above zero, such as 90s or 10m"))
    }

    /// Reads Go's text form: an optional sign, then numbers with units; `0` alone needs no unit.
    ///
    /// # Errors
    /// [`GoDurationError`] names the text (shortened) and what is allowed.
    pub fn parse(text: &str) -> Result<Self, GoDurationError> {
        let whole = || text.chars().take(64).collect::<String>();
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(GoDurationError::Form(whole()));
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (integer, after) = digits(rest);
            let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
            if integer.is_empty() && fraction.is_empty() {
                return Err(GoDurationError::Form(whole()));
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            rest = after;
            if unit.is_empty() {
                return Err(GoDurationError::MissingUnit(whole()));
            }
            let nanos = nanos_in(unit).ok_or_else(|| GoDurationError::UnknownUnit {
                unit: unit.chars().take(64).collect(),
                text: whole(),
            })?;
            total = amount(integer, fraction, nanos)
                .and_then(|n| total.checked_add(n))
                .filter(|n| *n <= MAX)
                .ok_or_else(|| GoDurationError::Range(whole()))?;
        }
        let total = if text.starts_with('-') { -i128::from(total) } else { i128::from(total) };
        i64::try_from(total).map(Self).map_err(|_| GoDurationError::Range(whole()))
    }

    /// Reads a duration that is not negative, as the standard library's type. For parsers of flags.
    ///
    /// # Errors
    /// A message with the allowed values.
    pub fn parse_std(text: &str) -> Result<Duration, String> {
        let duration = Self::parse(text).map_err(|error| error.to_string())?;
        duration.to_std().ok_or_else(|| "must not be negative".to_owned())
    }

    /// A duration of whole `seconds`, limited to the range of the type.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND as i64))
    }

    /// The standard library's unsigned duration; `None` when negative.
    #[must_use]
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

impl From<Duration> for GoDuration {
    /// Limited to the range of the type.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    /// Go's text: hours, minutes and seconds without leading zero units; below a second the largest unit that fits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", Decimal(nanos, 3)),
            1_000_000..SECOND => write!(f, "{}ms", Decimal(nanos, 6)),
            _ => {
                let minutes = nanos / SECOND / 60;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", Decimal(nanos % (60 * SECOND), 9))
            }
        }
    }
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The schema of durations in custom resources, which are not negative. The API server checks the rule.
#[cfg(feature = "schema")]
impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let part = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)";
        json_schema!({
            "type": "string",
            "maxLength": 64,
            "x-kubernetes-validations": [{
                // The second half refuses numbers that are too large for any duration.
                "rule": format!("self.matches(r'^[+]?(0|({part})+)$') && duration(self) >= duration('0s')"),
                "message": "must be a duration of at least 0 with units h, m, s, ms, us or ns, such as 10s or 1h30m",
            }],
        })
    }
}

/// `.0` divided by ten to the `.1`, without trailing zeros.
struct Decimal(u64, u32);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, places) = *self;
        let divisor = 10_u64.pow(places);
        let (whole, fraction) = (value / divisor, value % divisor);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{fraction:0places$}", places = places as usize);
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// Nanoseconds in a unit. Both the micro sign (U+00B5) and the Greek mu (U+03BC) are accepted.
fn nanos_in(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

/// `integer.fraction` units in nanoseconds, or `None` when out of range. As in Go, the fraction goes through a float
/// and drops digits past 18, so that results agree to the nanosecond.
fn amount(integer: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole = if integer.is_empty() { 0 } else { integer.parse::<u64>().ok()? }.checked_mul(unit)?;
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in fraction.bytes().map(|b| u64::from(b - b'0')) {
        let next = value.checked_mul(10).and_then(|v| v.checked_add(digit)).filter(|v| *v <= MAX);
        let Some(next) = next.filter(|_| value <= (MAX - 1) / 10) else { break };
        (value, scale) = (next, scale * 10.0);
    }
    whole.checked_add((value as f64 * (unit as f64 / scale)) as u64)
}

/// Splits off the leading ASCII digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests;
