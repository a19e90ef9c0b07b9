//! Functions and operators of selectors.
//!
//! In: the name of a function, and its arguments; the first is the target of a method. Out: its value. Never: a
//! function that costs more than it is charged.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use cel::common::ast::{CallExpr, operators};
use topology::quantity::{Format, Quantity};

use super::evaluation::{Evaluated, Evaluation, no_overload};
use super::value::Value;
use crate::devices::semver::Semver;

/// Functions with the number of their arguments, the target included.
const FUNCTIONS: [(&str, usize); 46] = [
    (operators::CONDITIONAL, 3),
    (operators::LOGICAL_AND, 2),
    (operators::LOGICAL_OR, 2),
    (operators::LOGICAL_NOT, 1),
    (operators::NOT_STRICTLY_FALSE, 1),
    (operators::INDEX, 2),
    (operators::EQUALS, 2),
    (operators::NOT_EQUALS, 2),
    (operators::LESS, 2),
    (operators::LESS_EQUALS, 2),
    (operators::GREATER, 2),
    (operators::GREATER_EQUALS, 2),
    (operators::ADD, 2),
    (operators::SUBSTRACT, 2),
    (operators::MULTIPLY, 2),
    (operators::DIVIDE, 2),
    (operators::MODULO, 2),
    (operators::NEGATE, 1),
    (operators::IN, 2),
    ("size", 1),
    ("dyn", 1),
    ("int", 1),
    ("string", 1),
    ("double", 1),
    ("startsWith", 2),
    ("endsWith", 2),
    ("contains", 2),
    ("matches", 2),
    ("lowerAscii", 1),
    ("upperAscii", 1),
    ("trim", 1),
    ("split", 2),
    ("quantity", 1),
    ("isQuantity", 1),
    ("semver", 1),
    ("isSemver", 1),
    ("compareTo", 2),
    ("isGreaterThan", 2),
    ("isLessThan", 2),
    ("isInteger", 1),
    ("asInteger", 1),
    ("sign", 1),
    ("add", 2),
    ("sub", 2),
    ("major", 1),
    ("minor", 1),
];
/// The same, of one argument.
const PATCH: &str = "patch";

/// Whether there is such a function with so many arguments.
pub(super) fn is_known(call: &CallExpr) -> bool {
    let count = call.args.len() + usize::from(call.target.is_some());
    FUNCTIONS.contains(&(call.func_name.as_str(), count)) || (call.func_name == PATCH && count == 1)
}

/// A value as text, for messages.
pub(super) fn show(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// The value of a function that looks at all of its arguments.
pub(super) fn apply<'a>(
    evaluation: &mut Evaluation<'a>,
    call: &CallExpr,
    arguments: &[Value<'a>],
) -> Evaluated<'a> {
    let sizes = arguments.iter().map(|argument| match argument {
        Value::Text(text) => text.len(),
        Value::List(list) => list.len(),
        _ => 0,
    });
    evaluation.charge_size(sizes.sum())?;
    match (call.func_name.as_str(), arguments) {
        (operators::LOGICAL_NOT, [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        (operators::EQUALS, [one, other]) => Ok(Value::Bool(one.equals(other))),
        (operators::NOT_EQUALS, [one, other]) => Ok(Value::Bool(!one.equals(other))),
        (operators::LESS, [one, other]) => ordered(one, other, Ordering::is_lt),
        (operators::LESS_EQUALS, [one, other]) => ordered(one, other, Ordering::is_le),
        (operators::GREATER, [one, other]) => ordered(one, other, Ordering::is_gt),
        (operators::GREATER_EQUALS, [one, other]) => ordered(one, other, Ordering::is_ge),
        (operators::NEGATE, [Value::Int(value)]) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        (operators::NEGATE, [Value::Double(value)]) => Ok(Value::Double(-value)),
        (operators::IN, [key, of]) => evaluation.contains(of, key).map(Value::Bool),
        (operators::ADD, [Value::Text(one), Value::Text(other)]) => {
            Ok(Value::Text(Cow::Owned(format!("{one}{other}"))))
        }
        (operators::ADD, [Value::List(one), Value::List(other)]) => {
            Ok(Value::List(Rc::new(one.iter().chain(other.iter()).cloned().collect())))
        }
        (
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            [one, other],
        ) => arithmetic(&call.func_name, one, other),
        ("dyn", [value]) => Ok(value.clone()),
        ("size", [value]) => size(evaluation, value),
        (name @ ("int" | "string" | "double"), [value]) => convert(name, value),
        (name, [Value::Text(text)]) => of_text(name, text),
        (name, [Value::Text(text), Value::Text(other)]) => of_texts(name, text, other),
        (name, [Value::Quantity(quantity)]) => of_quantity(name, *quantity),
        (name, [Value::Quantity(one), other]) => of_quantities(name, *one, other),
        ("major", [Value::Semver(version)]) => Ok(unsigned(version.numbers[0])),
        ("minor", [Value::Semver(version)]) => Ok(unsigned(version.numbers[1])),
        (PATCH, [Value::Semver(version)]) => Ok(unsigned(version.numbers[2])),
        (name, [Value::Semver(one), Value::Semver(other)]) => compared(name, one.cmp(other)),
        _ => Err(no_overload()),
    }
}

fn overflow() -> String {
    "integer overflow".to_owned()
}

fn unsigned(value: u64) -> Value<'static> {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn ordered<'a>(one: &Value<'a>, other: &Value<'a>, test: fn(Ordering) -> bool) -> Evaluated<'a> {
    one.order(other).map(|order| Value::Bool(test(order))).ok_or_else(no_overload)
}

/// A method that compares quantities or versions.
fn compared<'a>(name: &str, order: Ordering) -> Evaluated<'a> {
    match name {
        "compareTo" => Ok(Value::Int(order as i64)),
        "isGreaterThan" => Ok(Value::Bool(order.is_gt())),
        "isLessThan" => Ok(Value::Bool(order.is_lt())),
        _ => Err(no_overload()),
    }
}

fn arithmetic<'a>(operator: &str, one: &Value<'a>, other: &Value<'a>) -> Evaluated<'a> {
    let is_zero = matches!(other, Value::Int(0) | Value::Uint(0));
    match (one, other) {
        (Value::Int(_), Value::Int(_)) | (Value::Uint(_), Value::Uint(_)) if is_zero => match operator {
            operators::DIVIDE => return Err("division by zero".to_owned()),
            operators::MODULO => return Err("modulus by zero".to_owned()),
            _ => {}
        },
        _ => {}
    }
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => {
            let result = match operator {
                operators::ADD => one.checked_add(*other),
                operators::SUBSTRACT => one.checked_sub(*other),
                operators::MULTIPLY => one.checked_mul(*other),
                operators::DIVIDE => one.checked_div(*other),
                _ => one.checked_rem(*other),
            };
            result.map(Value::Int).ok_or_else(overflow)
        }
        (Value::Uint(one), Value::Uint(other)) => {
            let result = match operator {
                operators::ADD => one.checked_add(*other),
                operators::SUBSTRACT => one.checked_sub(*other),
                operators::MULTIPLY => one.checked_mul(*other),
                operators::DIVIDE => one.checked_div(*other),
                _ => one.checked_rem(*other),
            };
            result.map(Value::Uint).ok_or_else(|| "unsigned integer overflow".to_owned())
        }
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(match operator {
            operators::ADD => one + other,
            operators::SUBSTRACT => one - other,
            operators::MULTIPLY => one * other,
            operators::DIVIDE => one / other,
            _ => return Err(no_overload()),
        })),
        _ => Err(no_overload()),
    }
}

fn size<'a>(evaluation: &Evaluation<'a>, value: &Value<'a>) -> Evaluated<'a> {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        other => evaluation.elements(other)?.len(),
    };
    Ok(unsigned(size as u64))
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "conversions of CEL lose digits"
)]
fn convert<'a>(to: &str, value: &Value<'a>) -> Evaluated<'a> {
    let failed = || format!("type conversion error from '{}' to '{to}'", value.type_name());
    match (to, value) {
        ("int", Value::Int(_)) | ("string", Value::Text(_)) | ("double", Value::Double(_)) => {
            Ok(value.clone())
        }
        ("int", Value::Uint(value)) => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        ("int", Value::Double(value)) if value.abs() < 9.2e18 => Ok(Value::Int(*value as i64)),
        ("int", Value::Double(_)) => Err(overflow()),
        ("int", Value::Text(text)) => text.parse().map(Value::Int).map_err(|_| failed()),
        ("double", Value::Int(value)) => Ok(Value::Double(*value as f64)),
        ("double", Value::Uint(value)) => Ok(Value::Double(*value as f64)),
        ("double", Value::Text(text)) => text.parse().map(Value::Double).map_err(|_| failed()),
        ("string", Value::Int(_) | Value::Uint(_) | Value::Bool(_)) => {
            Ok(Value::Text(Cow::Owned(show(value))))
        }
        _ => Err(no_overload()),
    }
}

fn of_text<'a>(name: &str, text: &Cow<'a, str>) -> Evaluated<'a> {
    let owned = |text: String| Ok(Value::Text(Cow::Owned(text)));
    match name {
        "lowerAscii" => owned(text.to_ascii_lowercase()),
        "upperAscii" => owned(text.to_ascii_uppercase()),
        "trim" => owned(text.trim().to_owned()),
        "quantity" => Quantity::parse(text).map(Value::Quantity).map_err(|error| error.to_string()),
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        "semver" => Semver::parse(text).map(Value::Semver).ok_or_else(|| format!("invalid version {text:?}")),
        "isSemver" => Ok(Value::Bool(Semver::parse(text).is_some())),
        _ => Err(no_overload()),
    }
}

/// The most bytes of a compiled regular expression.
const MAX_REGEX: usize = 1 << 16;

fn of_texts<'a>(name: &str, text: &str, other: &str) -> Evaluated<'a> {
    Ok(Value::Bool(match name {
        "startsWith" => text.starts_with(other),
        "endsWith" => text.ends_with(other),
        "contains" => text.contains(other),
        "matches" => {
            let regex = regex_lite::RegexBuilder::new(other).size_limit(MAX_REGEX).build();
            regex.map_err(|error| format!("error parsing regexp: {error}"))?.is_match(text)
        }
        "split" => {
            let parts = text.split(other).map(|part| Value::Text(Cow::Owned(part.to_owned())));
            return Ok(Value::List(Rc::new(parts.collect())));
        }
        _ => return Err(no_overload()),
    }))
}

fn units(value: i64) -> Quantity {
    Quantity::from_i64(value, Format::DecimalSI)
}

fn of_quantity<'a>(name: &str, quantity: Quantity) -> Evaluated<'a> {
    let whole = Some(quantity.value()).filter(|value| *value < i64::MAX && units(*value) == quantity);
    match name {
        "isInteger" => Ok(Value::Bool(whole.is_some())),
        "asInteger" => whole.map(Value::Int).ok_or_else(|| "cannot convert value to integer".to_owned()),
        "sign" => Ok(Value::Int(i64::from(quantity.sign()))),
        _ => Err(no_overload()),
    }
}

fn of_quantities<'a>(name: &str, one: Quantity, other: &Value<'a>) -> Evaluated<'a> {
    let other = match (name, other) {
        (_, Value::Quantity(other)) => *other,
        ("add" | "sub", Value::Int(other)) => units(*other),
        _ => return Err(no_overload()),
    };
    match name {
        "add" => Ok(Value::Quantity(one.saturating_add(other))),
        "sub" => Ok(Value::Quantity(one.saturating_sub(other))),
        _ => compared(name, one.cmp(&other)),
    }
}
