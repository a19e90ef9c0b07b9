//! Kubernetes resource quantities, exactly.
//!
//! In: the text of a quantity (`1500m`, `16Gi`, `1e3`) or an integer. Out: a value that compares, adds and prints as
//! Kubernetes' own `resource.Quantity` does, in fixed point, never through a float. Never: a panic, a silent wrap, or
//! memory that grows with the exponent in the text.
//!
//! The reference loses or misprints very large values; this module keeps them ([`Quantity::MAX_WHOLE`], `value`, the
//! `E` suffix), and each such item says so. Hot loops use `i64` base units instead of this type.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Neg;
use std::str::FromStr;

/// The suffix family a quantity was written in; it decides how the value prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of 1024: `Ki Mi Gi Ti Pi Ei`. Falls back to [`Format::DecimalSI`] where it would lose precision.
    BinarySI,
    /// Powers of 1000: `n u m k M G T P E`, or nothing.
    #[default]
    DecimalSI,
    /// `e` and a power of ten that is a multiple of three.
    DecimalExponent,
}

/// A fixed-point number with nine decimal places and a preferred [`Format`].
///
/// Equality, order and hash go by value alone: `1000m`, `1` and `1e0` are equal.
///
/// # Example
/// ```
/// use topology::quantity::{Format, Quantity};
///
/// let cpu: Quantity = "1500m".parse()?;
/// assert_eq!((cpu.value(), cpu.milli_value(), cpu.floor_value()), (2, 1500, 1));
///
/// let memory = Quantity::from_i64(16 << 30, Format::BinarySI);
/// assert_eq!(memory.to_string(), "16Gi");
/// assert_eq!(memory.saturating_add("512Mi".parse()?).to_string(), "16896Mi");
///
/// assert!("1K".parse::<Quantity>().unwrap_err().to_string().contains("unknown suffix \"K\""));
/// # Ok::<(), topology::quantity::QuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// The value in billionths; its magnitude is at most [`MAX_NANOS`].
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("a quantity cannot be empty; write a number such as 2, 500m or 16Gi")]
    Empty,
    /// The text is not a number followed by a suffix.
    #[error(
        "{0:?} is not a quantity: expected a decimal number and an optional suffix, such as 2, 500m or 16Gi"
    )]
    Form(String),
    /// The text has no digit; the reference reads such a text as zero.
    #[error("{0:?} is not a quantity: it has no digits")]
    Number(String),
    /// The suffix is unknown.
    #[error(
        "{text:?} is not a quantity: unknown suffix {suffix:?}; allowed are n, u, m, k, M, G, T, P, E, \
         Ki, Mi, Gi, Ti, Pi, Ei, or e and an integer"
    )]
    Suffix {
        /// The whole text, shortened.
        text: String,
        /// The part after the number, shortened.
        suffix: String,
    },
}

const NANOS_PER_MILLI: i128 = 1_000_000;
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// 10^38 billionths, 10^29 units: the largest power of ten that `i128` holds.
const MAX_NANOS: i128 = 10_i128.pow(38);
/// What the reference caps binary quantities at: the largest `i64`, as billionths.
const MAX_BINARY_NANOS: i128 = (i64::MAX as i128) * NANOS_PER_UNIT;
/// No number of digits before the point beyond this can be below [`Quantity::MAX_WHOLE`].
const MAX_WHOLE_DIGITS: i64 = 30;
/// Zeros after the point beyond this cannot change a value that is rounded to nine places (2^60 has 19 digits).
const MAX_LEADING_ZEROS: i64 = 40;

impl Quantity {
    /// Zero, in the decimal format.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSI };
    /// The largest magnitude, in units: 10^29. Larger numbers are capped here; the reference keeps them exactly but
    /// reads them back wrongly (its `Value()` of `10E` is 0).
    pub const MAX_WHOLE: i128 = MAX_NANOS / NANOS_PER_UNIT;

    /// Reads a quantity as Kubernetes does: digits beyond nine decimal places round away from zero, and binary
    /// quantities are capped at 2^63-1.
    ///
    /// As lenient as the reference (`5.`, `.5`, `+5`), except that there must be a digit. Surrounding white space is
    /// not accepted here.
    ///
    /// # Errors
    /// [`QuantityError`], naming the text (shortened) and what is allowed.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let (suffix, mut format) = Suffix::parse(parts.suffix)
            .ok_or_else(|| QuantityError::Suffix { text: shorten(text), suffix: shorten(parts.suffix) })?;
        let mut nanos = parts.scaled(suffix);
        if format == Format::BinarySI {
            nanos = nanos.min(MAX_BINARY_NANOS);
            if nanos > 0 && nanos < NANOS_PER_UNIT {
                format = Format::DecimalSI;
            }
        }
        Ok(Self { nanos: if parts.negative { -nanos } else { nanos }, format })
    }

    /// A quantity of `value` whole units.
    #[must_use]
    pub const fn from_i64(value: i64, format: Format) -> Self {
        Self { nanos: value as i128 * NANOS_PER_UNIT, format }
    }

    /// A quantity of `value` thousandths.
    #[must_use]
    pub const fn from_milli(value: i64, format: Format) -> Self {
        Self { nanos: value as i128 * NANOS_PER_MILLI, format }
    }

    /// The suffix family in which the quantity prints.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Whole units, rounded away from zero; the nearest `i64` when out of range (the reference returns 0 or wraps).
    #[must_use]
    pub fn value(&self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// Thousandths, rounded away from zero; the nearest `i64` when out of range (the reference returns 0 or wraps).
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANOS_PER_MILLI))
    }

    /// Whole units, rounded down; the nearest `i64` when out of range. For availability, which must never promise more
    /// than there is.
    #[must_use]
    pub fn floor_value(&self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS_PER_UNIT))
    }

    /// Thousandths, rounded down; the nearest `i64` when out of range. For availability, which must never promise more
    /// than there is.
    #[must_use]
    pub fn floor_milli(&self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS_PER_MILLI))
    }

    /// Whether the value is zero, whatever the format.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// The sign of the value: -1, 0 or 1.
    #[must_use]
    pub const fn sign(&self) -> i32 {
        self.nanos.signum() as i32
    }

    /// The sum, or `None` beyond [`Self::MAX_WHOLE`]. A zero left side takes the right side's format, as in the
    /// reference.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let nanos = self.nanos.checked_add(other.nanos)?;
        (nanos.abs() <= MAX_NANOS).then_some(Self { nanos, format: self.format_with(other) })
    }

    /// The difference, or `None` beyond [`Self::MAX_WHOLE`]. A zero left side takes the right side's format, as in the
    /// reference.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(-other)
    }

    /// The sum, capped at [`Self::MAX_WHOLE`].
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let nanos = self.nanos.saturating_add(other.nanos).clamp(-MAX_NANOS, MAX_NANOS);
        Self { nanos, format: self.format_with(other) }
    }

    /// The difference, capped at [`Self::MAX_WHOLE`].
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        self.saturating_add(-other)
    }

    fn format_with(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }

    /// Mantissa, base and exponent of the canonical form: no digits after the point, the largest possible exponent.
    fn canonical(&self) -> (i128, Base, i32) {
        if self.format == Format::BinarySI {
            let whole = self.nanos / NANOS_PER_UNIT;
            if self.nanos % NANOS_PER_UNIT == 0 && whole.abs() >= 1024 {
                let (mantissa, times) = strip(whole, 1024, 6);
                return (mantissa, Base::Two, times);
            }
        }
        // Above `E` there is no suffix; the reference then prints none and loses the magnitude. This loop stops at `E`.
        let limit = if self.format == Format::DecimalExponent { i32::MAX } else { 9 };
        let (mantissa, times) = strip(self.nanos, 1000, limit);
        (mantissa, Base::Ten, times * 3 - 9)
    }
}

/// The base of a printed exponent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// Exponent in steps of 2^10.
    Two,
    /// Exponent of ten.
    Ten,
}

impl fmt::Display for Quantity {
    /// Writes the canonical text. (The reference echoes some non-canonical inputs, such as `+5`, unchanged.)
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let (mantissa, base, exponent) = self.canonical();
        write!(f, "{mantissa}")?;
        if base == Base::Two {
            return f.write_str(["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][exponent as usize]);
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 { Ok(()) } else { write!(f, "e{exponent}") };
        }
        f.write_str(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][(exponent / 3 + 3) as usize])
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: -self.nanos, format: self.format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a suffix multiplies the number by.
#[derive(Clone, Copy)]
enum Suffix {
    /// A power of two.
    Two(u32),
    /// A power of ten.
    Ten(i64),
}

impl Suffix {
    fn parse(text: &str) -> Option<(Self, Format)> {
        let two = |power| Some((Self::Two(power), Format::BinarySI));
        let ten = |power| Some((Self::Ten(power), Format::DecimalSI));
        match text {
            "" => ten(0),
            "n" => ten(-9),
            "u" => ten(-6),
            "m" => ten(-3),
            "k" => ten(3),
            "M" => ten(6),
            "G" => ten(9),
            "T" => ten(12),
            "P" => ten(15),
            "E" => ten(18),
            "Ki" => two(10),
            "Mi" => two(20),
            "Gi" => two(30),
            "Ti" => two(40),
            "Pi" => two(50),
            "Ei" => two(60),
            _ => {
                // The reference truncates the exponent to 32 bits, so that e4294967296 means e0; this parser does not.
                let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
                Some((Self::Ten(exponent), Format::DecimalExponent))
            }
        }
    }
}

/// The pieces of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        // Letters, then a sign, then digits, and nothing after: the form in which a suffix is looked up at all.
        let letters = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
        let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Form(shorten(text)));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Number(shorten(text)));
        }
        Ok(Self { negative: text.starts_with('-'), whole: whole.trim_start_matches('0'), fraction, suffix })
    }

    /// The magnitude times the suffix in billionths, rounded up, capped at [`MAX_NANOS`].
    fn scaled(&self, suffix: Suffix) -> i128 {
        let (power_of_two, power_of_ten) = match suffix {
            Suffix::Two(power) => (power, 0),
            Suffix::Ten(power) => (0, power),
        };
        // The digits are one string with the point after `point` of them, wherever that is.
        let digit = |i: i64| {
            let i = usize::try_from(i).ok()?;
            let found =
                self.whole.as_bytes().get(i).or_else(|| self.fraction.as_bytes().get(i - self.whole.len()));
            found.map(|b| i128::from(b - b'0'))
        };
        let count = (self.whole.len() + self.fraction.len()) as i64;
        let Some(first) = (0..count).find(|i| digit(*i) != Some(0)) else { return 0 };
        let point = (self.whole.len() as i64).saturating_add(power_of_ten);
        if point.saturating_sub(first) > MAX_WHOLE_DIGITS {
            return MAX_NANOS;
        }
        let whole = (first..point).fold(0_i128, |n, i| n * 10 + digit(i).unwrap_or(0));
        // From the last digit to the point, each step divides by ten: floors nest, so no big number is needed.
        let unit = NANOS_PER_UNIT << power_of_two;
        let (mut nanos, mut inexact) = (0_i128, false);
        let start = point.max(first.saturating_sub(MAX_LEADING_ZEROS));
        for i in (start..count).rev() {
            let sum = digit(i).unwrap_or(0) * unit + nanos;
            inexact |= sum % 10 != 0;
            nanos = sum / 10;
        }
        let total = whole.checked_mul(unit).and_then(|n| n.checked_add(nanos + i128::from(inexact)));
        total.map_or(MAX_NANOS, |n| n.min(MAX_NANOS))
    }
}

/// Splits off the leading ASCII digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Divides out `factor` up to `limit` times.
fn strip(mut value: i128, factor: i128, limit: i32) -> (i128, i32) {
    let mut times = 0;
    while times < limit && value != 0 && value % factor == 0 {
        value /= factor;
        times += 1;
    }
    (value, times)
}

fn divide_away_from_zero(value: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (value / divisor, value % divisor);
    quotient + remainder.signum()
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// The start of a text, so that messages stay short whatever the input.
fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
