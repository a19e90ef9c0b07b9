use super::*;
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// One line as the table writes it, computed by us.
fn recompute(line: &str) -> String {
    let fields: Vec<_> = line.split('\t').collect();
    match (fields[0], Quantity::parse(fields[1])) {
        ("P", Ok(q)) => format!(
            "P\t{}\t{q}\t{:?}\t{}\t{}\t{}",
            fields[1],
            q.format(),
            q.value(),
            q.milli_value(),
            q.sign()
        ),
        ("P", Err(error)) => {
            let kind = match error {
                QuantityError::Empty | QuantityError::Form(_) => "errF",
                QuantityError::Number(_) => "errN",
                QuantityError::Suffix { .. } => "errS",
            };
            format!("P\t{}\t{kind}", fields[1])
        }
        ("B", left) => {
            let (left, right) = (left.unwrap(), quantity(fields[2]));
            let (sum, difference) = (left.checked_add(right).unwrap(), left.checked_sub(right).unwrap());
            assert_eq!((left.saturating_add(right), left.saturating_sub(right)), (sum, difference), "{line}");
            format!(
                "B\t{}\t{}\t{}\t{sum}\t{:?}\t{difference}\t{:?}",
                fields[1],
                fields[2],
                left.cmp(&right) as i8,
                sum.format(),
                difference.format()
            )
        }
        other => panic!("unknown row {other:?}"),
    }
}

#[test]
fn agrees_with_kubernetes() {
    let table = include_str!("vectors.tsv");
    let rows: Vec<_> = table.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() > 400);
    for row in rows {
        assert_eq!(recompute(row), row);
    }
}

#[test]
fn errors_say_what_is_allowed() {
    for (text, message) in [
        ("", "a quantity cannot be empty; write a number such as 2, 500m or 16Gi"),
        (
            "two",
            "\"two\" is not a quantity: expected a decimal number and an optional suffix, such as 2, 500m or 16Gi",
        ),
        ("-", "\"-\" is not a quantity: it has no digits"),
        ("Ki", "\"Ki\" is not a quantity: it has no digits"),
        (
            "1KiB",
            "\"1KiB\" is not a quantity: expected a decimal number and an optional suffix, such as 2, 500m or 16Gi",
        ),
        (
            "1K",
            "\"1K\" is not a quantity: unknown suffix \"K\"; allowed are n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, \
             Pi, Ei, or e and an integer",
        ),
    ] {
        assert_eq!(Quantity::parse(text).map_err(|e| e.to_string()), Err(message.to_owned()), "{text:?}");
    }
    let long = "9".repeat(100_000) + "x";
    assert!(Quantity::parse(&long).unwrap_err().to_string().len() < 256);
}

#[test]
fn huge_and_tiny_exponents_cost_nothing() {
    for (text, expected) in [
        ("1e9223372036854775807", "100e27"),
        ("-1e4294967296", "-100e27"),
        ("1e29", "100e27"),
        ("1e30", "100e27"),
        ("1e-9223372036854775808", "1e-9"),
        ("-0.001e-4294967297", "-1e-9"),
        ("0e9223372036854775807", "0"),
        ("9999999999E", "9999999999E"),
        ("99999999999999999E", "100000000000E"),
    ] {
        assert_eq!(quantity(text).to_string(), expected, "{text}");
    }
    let digits = "7".repeat(200_000);
    assert_eq!(quantity(&digits).to_string(), "100000000000E");
    assert_eq!(quantity(&format!("0.{digits}")).to_string(), "777777778n");
    assert_eq!(quantity(&format!("0.{digits}Ki")).to_string(), "796444444445n");
}

#[test]
fn out_of_range_saturates() {
    let max = quantity("1e29");
    assert_eq!((max.value(), max.milli_value()), (i64::MAX, i64::MAX));
    assert_eq!(((-max).value(), (-max).floor_milli()), (i64::MIN, i64::MIN));
    assert_eq!((max.checked_add(max), (-max).checked_sub(max)), (None, None));
    assert_eq!((max.saturating_add(max), (-max).saturating_sub(max)), (max, -max));
    assert_eq!(quantity("44P").milli_value(), i64::MAX);
}

#[test]
fn requests_round_up_and_availability_rounds_down() {
    for (text, value, milli, floor_value, floor_milli) in [
        ("1", 1, 1000, 1, 1000),
        ("1500m", 2, 1500, 1, 1500),
        ("1n", 1, 1, 0, 0),
        ("0.0015", 1, 2, 0, 1),
        ("-1500m", -2, -1500, -2, -1500),
        ("-1n", -1, -1, -1, -1),
        ("1Gi", 1 << 30, 1000 << 30, 1 << 30, 1000 << 30),
    ] {
        let q = quantity(text);
        assert_eq!((q.value(), q.milli_value()), (value, milli), "{text}");
        assert_eq!((q.floor_value(), q.floor_milli()), (floor_value, floor_milli), "{text}");
    }
}

#[test]
fn integers_print_as_the_exporters_write_them() {
    for (value, text) in [
        (0, "0"),
        (12, "12"),
        (1500, "1500"),
        (12_000, "12k"),
        (1_024_000, "1024k"),
        (2_000_000, "2M"),
        (33_503_891_456, "33503891456"),
        (i64::MAX, "9223372036854775807"),
        (i64::MIN, "-9223372036854775808"),
    ] {
        assert_eq!(Quantity::from_i64(value, Format::DecimalSI).to_string(), text);
    }
    assert_eq!(Quantity::from_milli(1500, Format::DecimalSI).to_string(), "1500m");
    assert_eq!(Quantity::from_i64(16 << 30, Format::BinarySI).to_string(), "16Gi");
    assert_eq!(Quantity::from_milli(16_000, Format::DecimalSI).to_string(), "16");
}

#[test]
fn equality_and_hash_go_by_value() {
    use std::collections::HashSet;
    let same: HashSet<_> = ["1", "1000m", "1e0", "+1.0", "0.001k"].iter().map(|t| quantity(t)).collect();
    assert_eq!(same.len(), 1);
    assert_eq!(Quantity::default(), Quantity::ZERO);
    assert!(Quantity::ZERO.is_zero() && quantity("-0").is_zero());
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![Just(Format::BinarySI), Just(Format::DecimalSI), Just(Format::DecimalExponent)];
    let shift = 0_u32..=127;
    (any::<i128>(), shift, format)
        .prop_map(|(n, shift, format)| Quantity { nanos: (n >> shift).clamp(-MAX_NANOS, MAX_NANOS), format })
}

proptest! {
    #[test]
    fn any_text_parses_or_errs(text in "\\PC*") {
        let _ = Quantity::parse(&text);
    }

    #[test]
    fn near_quantities_parse_or_err(text in "[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,22}") {
        if let Ok(q) = Quantity::parse(&text) {
            prop_assert_eq!(quantity(&q.to_string()), q);
        }
    }

    #[test]
    fn canonical_text_keeps_the_value_and_is_stable(q in any_quantity()) {
        let text = q.to_string();
        let back = quantity(&text);
        // Binary quantities above 2^63-1 are capped when read.
        if q.format() != Format::BinarySI || q.value() != i64::MAX && q.value() != i64::MIN {
            prop_assert_eq!(back, q);
            prop_assert_eq!(back.to_string(), text);
        }
    }

    #[test]
    fn addition_and_subtraction_are_inverse(a in any_quantity(), b in any_quantity()) {
        if let Some(sum) = a.checked_add(b) {
            prop_assert_eq!(sum.checked_sub(b), Some(a));
            prop_assert_eq!(sum.cmp(&a), b.cmp(&Quantity::ZERO));
        }
    }

    #[test]
    fn floor_and_ceiling_bracket_the_value(q in any_quantity()) {
        let floor = Quantity::from_i64(q.floor_value(), Format::DecimalSI);
        let milli = Quantity::from_milli(q.floor_milli(), Format::DecimalSI);
        if q.floor_value() > i64::MIN && q.floor_value() < i64::MAX {
            prop_assert!(floor <= q && q.checked_sub(floor).unwrap() < quantity("1"));
        }
        if q.floor_milli() > i64::MIN && q.floor_milli() < i64::MAX {
            prop_assert!(milli <= q && q.checked_sub(milli).unwrap() < quantity("1m"));
        }
        if q.sign() >= 0 {
            prop_assert!(q.value() >= q.floor_value() && q.milli_value() >= q.floor_milli());
        }
    }
}
