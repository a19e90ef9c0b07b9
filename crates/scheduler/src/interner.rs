//! Equal values kept once: most pods share their spec and labels with others of their workload.
//!
//! In: values. Out: an equal value, shared by all that asked for it. Never: a value kept long after the last use.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::affinity::Labels;
use crate::pod::{PodView, Spec};

/// Values in use. Cost: a hash of each value, and a look at all values once as many again have come.
#[derive(Debug)]
struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The number of values at which those without users are dropped.
    sweep_at: usize,
}

/// Fewest values at which those without users are dropped.
const MIN_SWEEP: usize = 64;

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: MIN_SWEEP }
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    /// Replaces a value by the equal one that is in use.
    fn intern(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.values.get(&**value) {
            *value = Arc::clone(known);
            return;
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = (2 * self.values.len()).max(MIN_SWEEP);
        }
        self.values.insert(Arc::clone(value));
    }
}

/// The parts that pods share.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    specs: Interner<Spec>,
    labels: Interner<Labels>,
    /// Names of namespaces, schedulers and nodes, and messages.
    texts: Interner<str>,
}

impl Interned {
    /// Lets a pod share what other pods have too.
    pub(crate) fn share(&mut self, pod: &mut PodView) {
        self.specs.intern(&mut pod.spec);
        for needs in [&mut pod.charged, &mut pod.allocated] {
            if *needs == pod.spec.needs {
                *needs = Arc::clone(&pod.spec.needs);
            }
        }
        self.labels.intern(&mut pod.labels);
        self.texts.intern(&mut pod.namespace);
        self.texts.intern(&mut pod.scheduler);
        [&mut pod.node, &mut pod.unschedulable]
            .into_iter()
            .flatten()
            .for_each(|text| self.texts.intern(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let mut interner = Interner::<str>::default();
        let (mut first, mut second, mut other): (Arc<str>, Arc<str>, Arc<str>) =
            ("a".into(), "a".into(), "b".into());
        [&mut first, &mut second, &mut other].into_iter().for_each(|text| interner.intern(text));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &other));
        assert_eq!((&*second, &*other), ("a", "b"));
    }

    #[test]
    fn values_without_users_are_dropped() {
        let mut interner = Interner::<str>::default();
        let kept: Vec<Arc<str>> = (0..100)
            .map(|at| {
                let mut text = format!("kept {at}").into();
                interner.intern(&mut text);
                text
            })
            .collect();
        for at in 0..10_000 {
            interner.intern(&mut format!("dropped {at}").into());
            assert!(interner.values.len() <= 2 * (kept.len() + MIN_SWEEP), "{}", interner.values.len());
        }
        assert!(kept.iter().all(|text| interner.values.contains(text)));
    }
}
