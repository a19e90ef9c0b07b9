//! Answers that are remembered for a while.
//!
//! In: keys, values, how long they hold. Out: values that still hold. Never: more than a fixed number of them.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::{Duration, Instant};

/// Remembered answers; the oldest go first. All calls cost the logarithm of their number.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    most: usize,
    answers: BTreeMap<K, (Instant, V)>,
    /// Keys in the order in which they were first remembered.
    order: VecDeque<K>,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    /// A cache of at most so many answers.
    pub(super) fn new(most: usize) -> Self {
        Self { most, answers: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.answers.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// Remembers an answer; not at all if it holds for no time.
    pub(super) fn insert(&mut self, key: K, value: V, holds: Duration, now: Instant) {
        if holds.is_zero() {
            return;
        }
        if self.answers.insert(key.clone(), (now + holds, value)).is_none() {
            self.order.push_back(key);
        }
        while self.answers.len() > self.most {
            let Some(oldest) = self.order.pop_front() else { return };
            self.answers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_and_are_few() {
        let (start, hold) = (Instant::now(), Duration::from_secs(10));
        let mut cache = Cache::new(2);
        cache.insert(1, "a", hold, start);
        cache.insert(2, "b", Duration::ZERO, start);
        let found = |cache: &Cache<_, _>, key, after| cache.get(&key, start + Duration::from_secs(after));
        assert_eq!((found(&cache, 1, 9), found(&cache, 1, 10), found(&cache, 2, 0)), (Some("a"), None, None));
        cache.insert(1, "again", hold, start + hold);
        assert_eq!(found(&cache, 1, 10), Some("again"));
        cache.insert(3, "c", hold, start + hold);
        cache.insert(4, "d", hold, start + hold);
        let all = [1, 3, 4].map(|key| found(&cache, key, 10));
        assert_eq!(all, [None, Some("c"), Some("d")]);
        assert_eq!((cache.answers.len(), cache.order.len()), (2, 2));
    }
}
