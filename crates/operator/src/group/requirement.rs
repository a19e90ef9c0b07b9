//! Requirements of labels.
//!
//! In: selectors of objects. Out: whether labels meet them; the same as a pod's node affinity; the opposite. Never: a
//! selector that the API server would refuse.

use std::fmt;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use strum::{Display, EnumString};

/// A requirement of one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The values, in the order of the selector; none for [`Operator::Exists`] and [`Operator::DoesNotExist`].
    pub values: Vec<String>,
}

/// The comparison of a label, with the names that selectors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, EnumString)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is missing.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl Operator {
    fn opposite(self) -> Self {
        match self {
            Self::In => Self::NotIn,
            Self::NotIn => Self::In,
            Self::Exists => Self::DoesNotExist,
            Self::DoesNotExist => Self::Exists,
        }
    }
}

impl Requirement {
    /// The label has this value.
    #[must_use]
    pub fn equals(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
    }

    /// All requirements of a selector; none for one that selects everything.
    ///
    /// # Errors
    /// When an operator is unknown, or has values that it cannot have.
    pub fn all(selector: &LabelSelector) -> Result<Vec<Self>, String> {
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| Ok(Self::equals(key, value)));
        equal.chain(selector.match_expressions.iter().flatten().map(Self::read)).collect()
    }

    fn read(wire: &LabelSelectorRequirement) -> Result<Self, String> {
        let operator: Operator = wire.operator.parse().map_err(|_| {
            let shown: String = wire.operator.chars().take(64).collect();
            let allowed = "In, NotIn, Exists and DoesNotExist";
            format!("{shown:?} is not a valid label selector operator; allowed are {allowed}")
        })?;
        let (key, values) = (wire.key.clone(), wire.values.clone().unwrap_or_default());
        let allowed = match (operator, values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => "there must be values",
            (Operator::Exists | Operator::DoesNotExist, false) => "there must be no values",
            _ => return Ok(Self { key, operator, values }),
        };
        Err(format!("label selector: {key} {operator}: {allowed}"))
    }

    /// Whether labels meet the requirement; `label` returns the value of a label.
    pub fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(&self.key);
        let listed = || value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }

    /// The requirement that holds exactly where this one does not.
    #[must_use]
    pub fn opposite(&self) -> Self {
        Self { operator: self.operator.opposite(), ..self.clone() }
    }

    /// The requirement of a pod's node affinity.
    #[must_use]
    pub fn of_node(&self) -> NodeSelectorRequirement {
        NodeSelectorRequirement {
            key: self.key.clone(),
            operator: self.operator.to_string(),
            values: (!self.values.is_empty()).then(|| self.values.clone()),
        }
    }
}

/// Whether a selector selects labels. As in Kubernetes, a missing selector selects nothing and an empty one everything;
/// an invalid one selects nothing.
pub fn selects<'a>(selector: Option<&LabelSelector>, label: impl Fn(&str) -> Option<&'a str> + Copy) -> bool {
    let all = selector.and_then(|selector| Requirement::all(selector).ok());
    all.is_some_and(|all| all.iter().all(|requirement| requirement.holds(label)))
}

/// The form in which `kubectl` shows selectors.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, values, .. } = self;
        match (self.operator, values.as_slice()) {
            (Operator::In, [value]) => write!(f, "{key}={value}"),
            (Operator::NotIn, [value]) => write!(f, "{key}!={value}"),
            (Operator::In, values) => write!(f, "{key} in ({})", values.join(",")),
            (Operator::NotIn, values) => write!(f, "{key} notin ({})", values.join(",")),
            (Operator::Exists, _) => f.write_str(key),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::{Selector, SelectorExt as _};
    use proptest::prelude::*;

    use super::*;

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
        }
    }

    fn selector(expressions: Vec<LabelSelectorRequirement>) -> LabelSelector {
        LabelSelector { match_expressions: Some(expressions), ..LabelSelector::default() }
    }

    #[test]
    fn invalid_selectors_are_refused() {
        for (operator, values, wanted) in [
            ("in", &["x"][..], "\"in\" is not a valid label selector operator"),
            ("Gt", &["1"], "\"Gt\" is not a valid label selector operator"),
            ("In", &[], "label selector: a In: there must be values"),
            ("NotIn", &[], "label selector: a NotIn: there must be values"),
            ("Exists", &["x"], "label selector: a Exists: there must be no values"),
            ("DoesNotExist", &["x"], "label selector: a DoesNotExist: there must be no values"),
        ] {
            let selector = selector(vec![expression("a", operator, values)]);
            let error = Requirement::all(&selector).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
            assert!(!selects(Some(&selector), |_| Some("x")), "{operator}");
        }
        assert!(!selects(None, |_| None));
        assert!(selects(Some(&LabelSelector::default()), |_| None));
    }

    #[test]
    fn selectors_are_shown_as_kubectl_shows_them() {
        for (operator, values, wanted) in [
            ("In", &["x"][..], "a=x"),
            ("In", &["x", "y"], "a in (x,y)"),
            ("NotIn", &["x"], "a!=x"),
            ("NotIn", &["x", "y"], "a notin (x,y)"),
            ("Exists", &[], "a"),
            ("DoesNotExist", &[], "!a"),
        ] {
            let all = Requirement::all(&selector(vec![expression("a", operator, values)])).unwrap();
            assert_eq!(all[0].to_string(), wanted);
        }
    }

    proptest! {
        /// Selectors mean the same as in kube's client library, and the opposite holds exactly where the requirement
        /// does not.
        #[test]
        fn selectors_mean_what_kubernetes_means(
            keys in prop::collection::vec((0..3_usize, 0..4_usize, 1..3_usize), 0..4),
            label in prop::collection::vec(prop::option::of(0..3_usize), 3),
        ) {
            let words = ["a", "b", "c"];
            let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
            let expressions: Vec<_> = keys.iter().map(|(key, operator, count)| {
                let values = if *operator < 2 { &words[..*count] } else { &[] };
                expression(words[*key], operators[*operator], values)
            }).collect();
            let labels: BTreeMap<String, String> = label.iter().zip(words)
                .filter_map(|(value, key)| Some((key.to_owned(), words[(*value)?].to_owned()))).collect();
            let selector = selector(expressions);
            let get = |key: &str| labels.get(key).map(String::as_str);
            let theirs = Selector::try_from(selector.clone()).unwrap().matches(&labels);
            prop_assert_eq!(selects(Some(&selector), get), theirs);
            for one in Requirement::all(&selector).unwrap() {
                prop_assert_ne!(one.holds(get), one.opposite().holds(get));
            }
        }
    }
}
