//! Capacities of devices that claims share.
//!
//! In: the capacities that a request asks for, and those of a device. Out: what the request takes, and whether that is
//! left. Source: kube-scheduler 1.36 `structured/internal/incubating/consumable_capacity.go`.

use topology::quantity::{Format, Quantity};

use crate::devices::views::{Amounts, Capacity, Device, Policy};

/// Whether a device has enough left of what a request asks for. `taken`: by claims, and by the allocation so far.
pub(super) fn is_enough(device: &Device, asked: &Amounts, taken: [Option<&Amounts>; 2]) -> bool {
    asked.keys().all(|name| device.capacity.contains_key(name))
        && device.capacity.iter().all(|(name, capacity)| {
            let amount = consumed(capacity, asked.get(name));
            let others = taken.into_iter().flatten().filter_map(|amounts| amounts.get(name));
            let sum = others.fold(amount, |sum, other| sum.saturating_add(*other));
            !capacity.policy.as_ref().is_some_and(|policy| violates(amount, policy)) && sum <= capacity.value
        })
}

/// What a request takes of a device.
pub(super) fn consumption(device: &Device, asked: &Amounts) -> Amounts {
    let capacity = device.capacity.iter();
    capacity.map(|(name, capacity)| (name.clone(), consumed(capacity, asked.get(name)))).collect()
}

/// What a request takes of one capacity: all if it says nothing, and else the next amount that the driver allows.
fn consumed(capacity: &Capacity, asked: Option<&Quantity>) -> Quantity {
    let policy = capacity.policy.as_ref();
    let Some(asked) = asked.copied() else {
        return policy.and_then(|policy| policy.default).unwrap_or(capacity.value);
    };
    match policy {
        Some(Policy { range: Some((min, _, _)), .. }) if asked < *min => *min,
        Some(Policy { range: Some((min, _, Some(step))), .. }) => {
            let (min, step) = (min.value(), step.value().max(1));
            let added = asked.value().saturating_sub(min);
            let steps = added.div_euclid(step).saturating_add(i64::from(added.rem_euclid(step) != 0));
            Quantity::from_i64(min.saturating_add(step.saturating_mul(steps)), Format::BinarySI)
        }
        Some(Policy { range: None, values, .. }) => {
            values.iter().find(|value| asked <= **value).copied().unwrap_or(asked)
        }
        _ => asked,
    }
}

/// Whether the driver does not allow an amount.
fn violates(amount: Quantity, policy: &Policy) -> bool {
    if policy.default.is_some_and(|default| default == amount && default.format() == amount.format()) {
        return false;
    }
    match &policy.range {
        Some((min, max, step)) => {
            let off = |step: &Quantity| amount.value().saturating_sub(min.value()) % step.value().max(1) != 0;
            max.is_some_and(|max| amount > max) || step.as_ref().is_some_and(off)
        }
        None => !policy.values.is_empty() && !policy.values.contains(&amount),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of `consumable_capacity_test.go` in effect: default, rounding up by steps and values, limits.
    #[test]
    fn requests_take_the_next_amount_that_the_driver_allows() {
        let amount = |text: &str| Quantity::parse(text).unwrap();
        let range = |min: &str, max: &str, step: &str| Policy {
            default: Some(amount("1Gi")),
            range: Some((amount(min), Some(amount(max)), Some(amount(step)))),
            values: vec![],
        };
        let values = |list: &[&str]| Policy {
            default: Some(amount("2")),
            range: None,
            values: list.iter().map(|text| amount(text)).collect(),
        };
        for (policy, asked, wanted, is_allowed) in [
            (None, None, "8Gi", true),
            (None, Some("3Gi"), "3Gi", true),
            (None, Some("9Gi"), "9Gi", true),
            (Some(range("1Gi", "4Gi", "1Gi")), None, "1Gi", true),
            (Some(range("1Gi", "4Gi", "1Gi")), Some("1500Mi"), "2Gi", true),
            (Some(range("1Gi", "4Gi", "1Gi")), Some("1Mi"), "1Gi", true),
            (Some(range("1Gi", "4Gi", "1Gi")), Some("5Gi"), "5Gi", false),
            (Some(values(&["1", "2", "4"])), Some("3"), "4", true),
            (Some(values(&["1", "2", "4"])), Some("5"), "5", false),
            (Some(values(&["1", "4"])), None, "2", true),
        ] {
            let capacity = Capacity { value: amount("8Gi"), policy };
            let taken = consumed(&capacity, asked.map(amount).as_ref());
            assert_eq!(taken, amount(wanted), "{capacity:?} {asked:?}");
            let violates = capacity.policy.as_ref().is_some_and(|policy| violates(taken, policy));
            assert_eq!(!violates, is_allowed, "{capacity:?} {asked:?}");
        }
    }
}
