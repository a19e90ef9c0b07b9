//! The fewest pods that have to leave a node for another one.
//!
//! In: pods that may leave, and a verdict about any of their sets. Out: a set that is enough. Never: a look at a node.
//!
//! Pods are spared one by one first, the most important ones first. Where zones decide, that can leave several small
//! pods in place of one that is as important, so smaller sets are looked for then.

use itertools::Itertools as _;

use crate::ledger::PodId;

/// Most sets that are looked at.
const MAX_SETS: usize = 5_000;
/// Most sets that are tried.
const MAX_TRIED: usize = 64;

/// The pods that have to leave when as many as can be stay, the most important ones first. `least_important_first`:
/// those that may leave. `fits`: whether these are enough. `None`: all of them are not. Cost: a verdict for each pod.
pub(super) fn fewest_to_leave(
    least_important_first: &[PodId],
    mut fits: impl FnMut(&[PodId]) -> bool,
) -> Option<Vec<PodId>> {
    let mut left = Some(least_important_first.to_vec()).filter(|all| fits(all))?;
    for id in least_important_first.iter().rev() {
        let without: Vec<PodId> = left.iter().copied().filter(|other| other != id).collect();
        if fits(&without) {
            left = without;
        }
    }
    Some(left)
}

/// A smallest set of fewer than `below` pods that is enough, by their positions among `count`, of those the one with
/// the lowest positions. `could_fit`: a cheap look at a set; `fits`: the verdict. `None`: there is none among the first
/// [`MAX_SETS`] sets and the first [`MAX_TRIED`] of those that could be enough.
pub(super) fn smallest_set(
    (count, below): (usize, usize),
    could_fit: impl Fn(&[usize]) -> bool,
    mut fits: impl FnMut(&[usize]) -> bool,
) -> Option<Vec<usize>> {
    let sets = (1..below.min(count + 1)).flat_map(|size| (0..count).combinations(size));
    let mut promising = sets.take(MAX_SETS).filter(|set| could_fit(set)).take(MAX_TRIED);
    promising.find(|set| fits(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_set_comes_first() {
        let sizes = [1, 1, 3, 2, 4];
        let sum = |set: &[usize]| set.iter().map(|at| sizes[*at]).sum::<i32>();
        for (wanted, below, found) in [
            (4, 9, Some(vec![4])),
            (5, 9, Some(vec![0, 4])),
            (3, 9, Some(vec![2])),
            (11, 9, Some(vec![0, 1, 2, 3, 4])),
            (11, 5, None),
            (12, 9, None),
            (4, 1, None),
        ] {
            assert_eq!(
                smallest_set((sizes.len(), below), |_| true, |set| sum(set) >= wanted),
                found,
                "{wanted}"
            );
            let pruned = smallest_set((sizes.len(), below), |set| sum(set) >= wanted, |_| true);
            assert_eq!(pruned, found, "{wanted}");
        }
    }

    #[test]
    fn a_search_ends() {
        let mut tried = 0;
        let nothing = smallest_set(
            (200, 100),
            |_| true,
            |_| {
                tried += 1;
                false
            },
        );
        assert_eq!((nothing, tried), (None, MAX_TRIED));
        assert_eq!(smallest_set((200, 100), |_| false, |_| true), None);
    }
}
