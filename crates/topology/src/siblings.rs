//! The hardware threads of each core, as short text.
//!
//! In: cores, as sets of CPUs. Out: one line of text, and back. Never: a CPU in two cores, or an id above
//! [`MAX_CPU`], so no text can make the answer large.
//!
//! # Form
//! Runs, joined by `;`. A run is `FIRST-LAST:STRIDE+OFFSET+OFFSET..`: there is a core at FIRST, and at every STRIDE
//! CPUs up to LAST, and each has the CPU there and those OFFSETs after it. A stride of 1 is left out; so are LAST and
//! STRIDE of one core. Two threads whose ids are 64 apart are `0-63+64`, neighbours `0-126:2+1`, no hyper-threading
//! `0-127`.
//!
//! # Example
//! ```
//! use topology::cpuset::CpuSet;
//! use topology::siblings::{decode, encode};
//!
//! let cores = ["0,4", "1,5", "2,6", "3"].map(|core| CpuSet::parse(core).unwrap());
//! assert_eq!(encode(&cores), "0-2+4;3");
//! assert_eq!(decode("0-2+4;3").unwrap(), cores);
//! ```

use std::fmt::Write as _;

use crate::cpuset::{CpuSet, MAX_CPU};

/// Longer texts are refused unread.
const MAX_LEN: usize = 1 << 20;

/// Why a text says no cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiblingsError {
    /// A part between semicolons is malformed, or its ids are too large.
    #[error(
        "{0:?} is no run of cores: expected FIRST-LAST:STRIDE+OFFSET, such as 0-63+64, ids up to {MAX_CPU}"
    )]
    Run(String),
    /// A CPU is in two cores.
    #[error("CPU {0} is in two cores")]
    Twice(u32),
    /// The text is longer than the limit.
    #[error("cores of {0} bytes; at most {MAX_LEN} are read")]
    Length(usize),
}

/// Cores whose threads lie alike, at equal distances.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    last: u32,
    stride: u32,
    offsets: Vec<u32>,
}

/// Writes cores, in any order. Empty ones are left out.
#[must_use]
pub fn encode(cores: &[CpuSet]) -> String {
    let mut starts: Vec<(u32, Vec<u32>)> = cores
        .iter()
        .filter_map(|core| {
            let first = core.first()?;
            Some((first, core.iter().skip(1).map(|cpu| cpu - first).collect()))
        })
        .collect();
    starts.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for (cpu, offsets) in starts {
        match runs.last_mut().filter(|run| run.goes_on_at(cpu, &offsets)) {
            Some(run) => (run.stride, run.last) = (cpu - run.last, cpu),
            None => runs.push(Run { first: cpu, last: cpu, stride: 1, offsets }),
        }
    }
    runs.iter().map(Run::encode).collect::<Vec<_>>().join(";")
}

/// Reads cores, in the order of the text. Cost: CPUs.
///
/// # Errors
/// [`SiblingsError`] names the run, or the CPU that two cores have.
pub fn decode(text: &str) -> Result<Vec<CpuSet>, SiblingsError> {
    if text.len() > MAX_LEN {
        return Err(SiblingsError::Length(text.len()));
    }
    let (mut cores, mut known) = (Vec::new(), CpuSet::new());
    for part in text.split(';').filter(|_| !text.is_empty()) {
        let wrong = || SiblingsError::Run(part.chars().take(64).collect());
        let run = Run::parse(part).ok_or_else(wrong)?;
        for first in (run.first..=run.last).step_by(run.stride as usize) {
            let ids = std::iter::once(Some(first))
                .chain(run.offsets.iter().map(|offset| first.checked_add(*offset)));
            let ids: Vec<u32> = ids.collect::<Option<_>>().ok_or_else(wrong)?;
            let core = CpuSet::from_ids(ids).map_err(|_| wrong())?;
            if let Some(cpu) = core.intersection(&known).first() {
                return Err(SiblingsError::Twice(cpu));
            }
            known.insert_all(&core);
            cores.push(core);
        }
    }
    Ok(cores)
}

impl Run {
    fn goes_on_at(&self, cpu: u32, offsets: &[u32]) -> bool {
        self.offsets == offsets && (self.first == self.last || cpu - self.last == self.stride)
    }

    fn encode(&self) -> String {
        let mut text = self.first.to_string();
        // Writing to a string cannot fail.
        if self.last > self.first {
            let _ = write!(text, "-{}", self.last);
            if self.stride > 1 {
                let _ = write!(text, ":{}", self.stride);
            }
        }
        for offset in &self.offsets {
            let _ = write!(text, "+{offset}");
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let id = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u32>().ok().filter(|id| plain && *id <= MAX_CPU)
        };
        let mut parts = text.split('+');
        let cores = parts.next()?;
        let offsets = parts.map(|part| id(part).filter(|offset| *offset > 0)).collect::<Option<Vec<_>>>()?;
        let (range, stride) = match cores.split_once(':') {
            Some((range, stride)) => (range, id(stride).filter(|stride| *stride > 0)?),
            None => (cores, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (id(first)?, id(last)?);
        (first <= last).then_some(Self { first, last, stride, offsets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cores(lists: &[&str]) -> Vec<CpuSet> {
        lists.iter().map(|list| CpuSet::parse(list).unwrap()).collect()
    }

    #[test]
    fn usual_machines_are_short() {
        let far: Vec<_> = (0..64).map(|cpu| CpuSet::from_ids([cpu, cpu + 64]).unwrap()).collect();
        let near: Vec<_> = (0..64).map(|core| CpuSet::from_ids([2 * core, 2 * core + 1]).unwrap()).collect();
        let four: Vec<_> = (0..8).map(|core| CpuSet::from_ids(4 * core..4 * core + 4).unwrap()).collect();
        let plain: Vec<_> = (0..128).map(|cpu| CpuSet::from_ids([cpu]).unwrap()).collect();
        for (cores, text) in [
            (far, "0-63+64"),
            (near, "0-126:2+1"),
            (four, "0-28:4+1+2+3"),
            (plain, "0-127"),
            (cores(&["0,4", "1,5", "2", "3,7"]), "0-1+4;2;3+4"),
            (cores(&["0", "5", "10"]), "0-10:5"),
            (cores(&[]), ""),
        ] {
            assert_eq!(encode(&cores), text);
            assert_eq!(decode(text), Ok(cores));
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for run in
            ["x", "", "1-", "3-1", "0-4:0", "0+0", "0+", "0-8192", "8191+1", "-1", "+1", "0-1:+1", "0 "]
        {
            let text = format!("{run};7");
            assert_eq!(decode(&text), Err(SiblingsError::Run(run.to_owned())), "{text:?}");
        }
        assert_eq!(decode("0-4+1"), Err(SiblingsError::Twice(1)));
        assert_eq!(decode("0;1;0"), Err(SiblingsError::Twice(0)));
        let long = ";".repeat(MAX_LEN + 1);
        assert_eq!(decode(&long), Err(SiblingsError::Length(long.len())));
    }

    proptest! {
        #[test]
        fn any_cores_are_read_as_they_were(places in proptest::collection::vec(0_usize..40, 0..120)) {
            // Each CPU is in the core that its place names.
            let mut cores = vec![CpuSet::new(); 40];
            for (cpu, place) in (0..).zip(places) {
                cores[place].insert(cpu).unwrap();
            }
            cores.retain(|core| !core.is_empty());
            cores.sort_by_key(CpuSet::first);
            prop_assert_eq!(decode(&encode(&cores)), Ok(cores));
        }

        #[test]
        fn no_text_panics(text in "[0-9+:;-]{0,24}|.*") {
            let _ = decode(&text);
        }
    }
}
