//! Sets of CPU ids in the kernel's list syntax (`0-3,8,10-11`).
//!
//! In: text from sysfs, the kubelet or a configuration. Out: a set that compares, combines and prints in one canonical
//! way. Never: ids above [`MAX_CPU`], so no input can make it large, nor an opinion about which CPUs exist.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

/// The largest id accepted; the largest kernels are built for 8,192 CPUs.
pub const MAX_CPU: u32 = 8_191;

/// A set of CPU ids. Memory and the cost of set operations grow with the largest id, at most 1 KiB.
///
/// # Example
/// ```
/// use topology::cpuset::CpuSet;
///
/// let (all, reserved) = (CpuSet::parse("0-7")?, CpuSet::parse("0,4")?);
/// let shared = all.difference(&reserved);
/// assert_eq!((shared.to_string().as_str(), shared.len()), ("1-3,5-7", 6));
/// assert!(CpuSet::parse("3-1").is_err());
/// # Ok::<(), topology::cpuset::CpuSetError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Bit `i % 64` of word `i / 64` stands for CPU `i`. The last word is never zero, so equal sets are equal vectors.
    /// Ids below 256 need no allocation.
    words: SmallVec<[u64; 4]>,
}

/// Why a text or an id does not make a CPU set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// A part between commas is neither a number nor a range.
    #[error("{0:?} in a CPU list is neither a CPU id nor a range such as 0-3")]
    Part(String),
    /// A range runs backwards.
    #[error("CPU range {0}-{1} runs backwards")]
    Backwards(u32, u32),
    /// An id is too large.
    #[error("CPU id {0} is too large; allowed are 0 to {MAX_CPU}")]
    TooLarge(u64),
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a CPU list. Parts may overlap and come in any order. White space around the whole is ignored (sysfs ends
    /// the list with a newline); an empty text is the empty set.
    ///
    /// # Errors
    /// [`CpuSetError`] names the offending part.
    pub fn parse(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (parse_id(first, part)?, parse_id(last, part)?);
            if first > last {
                return Err(CpuSetError::Backwards(first, last));
            }
            for cpu in first..=last {
                set.set(cpu);
            }
        }
        Ok(set)
    }

    /// The set of these ids, in any order.
    ///
    /// # Errors
    /// [`CpuSetError::TooLarge`] for an id above [`MAX_CPU`].
    pub fn from_ids(ids: impl IntoIterator<Item = u32>) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        for id in ids {
            set.insert(id)?;
        }
        Ok(set)
    }

    /// Adds one id; true if it is new.
    ///
    /// # Errors
    /// [`CpuSetError::TooLarge`] for an id above [`MAX_CPU`].
    pub fn insert(&mut self, cpu: u32) -> Result<bool, CpuSetError> {
        if cpu > MAX_CPU {
            return Err(CpuSetError::TooLarge(cpu.into()));
        }
        let new = !self.contains(cpu);
        self.set(cpu);
        Ok(new)
    }

    /// Removes one id; true if it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let there = self.contains(cpu);
        if there {
            self.words[cpu as usize / 64] &= !(1 << (cpu % 64));
            self.trim();
        }
        there
    }

    /// Whether the id is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|w| w & (1 << (cpu % 64)) != 0)
    }

    /// The number of ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set has no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The smallest id, if there is one.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip(0_u32..).flat_map(|(word, index)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }

    /// The ids in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// The ids in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    /// The ids in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    /// Adds the ids of another set.
    pub fn insert_all(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
    }

    /// Removes the ids of another set.
    pub fn remove_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, less)| *word &= !less);
        self.trim();
    }

    /// The number of ids in both sets, without making that set.
    #[must_use]
    pub fn count_shared(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Whether any id of this set is in both others.
    #[must_use]
    pub fn meets_both(&self, one: &Self, other: &Self) -> bool {
        self.words.iter().zip(&one.words).zip(&other.words).any(|((a, b), c)| a & b & c != 0)
    }

    /// Removes the largest id and returns it.
    pub fn pop_last(&mut self) -> Option<u32> {
        let word = self.words.last_mut()?;
        let bit = 63 - word.leading_zeros();
        *word &= !(1 << bit);
        let last = u32::try_from(self.words.len() - 1).ok()? * 64 + bit;
        self.trim();
        Some(last)
    }

    /// Whether every id of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Whether the sets share no id.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// Combines word by word; a shorter set counts as padded with zeros.
    fn combine(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let word = |set: &Self, i: usize| set.words.get(i).copied().unwrap_or(0);
        let words = (0..self.words.len().max(other.words.len())).map(|i| op(word(self, i), word(other, i)));
        let mut set = Self { words: words.collect() };
        set.trim();
        set
    }

    /// The caller has checked `cpu` against [`MAX_CPU`].
    fn set(&mut self, cpu: u32) {
        let index = cpu as usize / 64;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (cpu % 64);
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl fmt::Display for CpuSet {
    /// The kernel's list form: ascending, neighbours joined into ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Digits only: no sign, no white space, as the kernel prints them.
fn parse_id(text: &str, part: &str) -> Result<u32, CpuSetError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(CpuSetError::Part(part.chars().take(64).collect()));
    }
    let id = text.parse::<u64>().unwrap_or(u64::MAX);
    u32::try_from(id).ok().filter(|id| *id <= MAX_CPU).ok_or(CpuSetError::TooLarge(id))
}

#[cfg(test)]
mod tests;
