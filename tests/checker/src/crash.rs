//! The states that a power cut can leave: any subset of the writes since the last flush, each whole or torn at a
//! sector.

use std::fmt;
use std::io;
use std::ops::Range;

use crate::bytes::{Bytes, Overlay, Store};
use crate::verdict::{Expected, Verdict, judge};

/// The writes and flushes that reached a disk, in order.
#[allow(missing_debug_implementations)]
pub struct Log<'a> {
    pub entries: Vec<Entry>,
    /// The written bytes; each write has its place in them.
    pub data: &'a dyn Bytes,
}

/// One request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `length` bytes were written to `offset`; they are at `at` in the data of the log.
    Write {
        offset: u64,
        /// In bytes.
        length: u64,
        /// In the data of the log.
        at: u64,
    },
    /// Everything before it is durable.
    Flush,
}

#[derive(Clone, Copy, Debug)]
pub struct StateSelection {
    /// The unit that a disk writes as a whole, in bytes.
    pub sector: u64,
    /// Of the random subsets.
    pub seed: u64,
    /// How many random subsets of the writes between two flushes are judged, besides every prefix.
    pub subsets: usize,
}

#[derive(Debug)]
pub struct State<'a> {
    pub flushes: usize,
    /// The writes since then that reached the disk: index in the log, entry, and how many of its sectors.
    pub writes: &'a [(usize, Entry, u64)],
    pub verdict: Verdict,
}

impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} flushes and", self.flushes)?;
        for (number, entry, sectors) in self.writes {
            if let Entry::Write { offset, length, .. } = entry {
                write!(f, " #{number}({sectors} sectors of {length} bytes at {offset})")?;
            }
        }
        write!(f, ": {:?}", self.verdict)
    }
}

/// Gives the verdict on a disk that is not in its old state.
pub type Judge<'a> = dyn Fn(&dyn Bytes) -> io::Result<Verdict> + 'a;

/// Judges every prefix of the log, and random subsets of the writes since the last flush. `disk` is in its old state
/// first, and in the end in that after the whole log.
pub fn every_state(
    disk: &mut dyn Store,
    log: &Log<'_>,
    judge: &Judge<'_>,
    choice: StateSelection,
    visit: &mut dyn FnMut(&State<'_>),
) -> io::Result<()> {
    let mut random = Random(choice.seed);
    let mut old = true;
    for (flushes, window) in windows(&log.entries).into_iter().enumerate() {
        let all: Vec<_> = window.clone().map(|number| (number, log.entries[number])).collect();
        let prefixes = (0..=all.len()).map(|count| (all[..count].to_vec(), false));
        let subsets: Vec<_> = (0..choice.subsets)
            .map(|_| (all.iter().copied().filter(|_| random.below(2) == 1).collect(), true))
            .collect();
        for (writes, torn) in prefixes.chain(subsets) {
            let mut state = Overlay::new(&*disk);
            let mut lasted = Vec::new();
            for (number, entry) in writes {
                let sectors = apply(&mut state, log, entry, torn.then_some((&mut random, choice.sector)))?;
                lasted.push((number, entry, sectors));
            }
            let verdict = match old && state.is_unchanged()? {
                true => Verdict::OldState,
                false => judge(&state)?,
            };
            visit(&State { flushes, writes: &lasted, verdict });
        }
        for (_, entry) in all {
            old = old && is_there(disk, log, entry)?;
            apply(disk, log, entry, None)?;
        }
    }
    Ok(())
}

/// Judges `count` random prefixes of the log, and the whole log, in order: for logs that are too long to judge every
/// prefix.
pub fn prefixes(
    disk: &mut dyn Store,
    log: &Log<'_>,
    expected: &Expected,
    (count, seed): (usize, u64),
    visit: &mut dyn FnMut(&State<'_>),
) -> io::Result<()> {
    let mut random = Random(seed);
    let length = log.entries.len();
    let mut stops: Vec<_> = (0..count).map(|_| random.below(length as u64)).collect();
    stops.push(length as u64);
    stops.sort_unstable();
    let (mut done, mut old, mut flushes) = (0, true, 0);
    for stop in stops.into_iter().filter_map(|stop| usize::try_from(stop).ok()) {
        let begun = done;
        while done < stop {
            old = old && is_there(disk, log, log.entries[done])?;
            flushes += usize::from(log.entries[done] == Entry::Flush);
            apply(disk, log, log.entries[done], None)?;
            done += 1;
        }
        let verdict = if old { Verdict::OldState } else { judge(disk, expected)? };
        let last = (begun < done).then(|| (done - 1, log.entries[done - 1], 0));
        visit(&State { flushes, writes: last.as_slice(), verdict });
    }
    Ok(())
}

/// The writes between flushes, as ranges of entries. Successive flushes count as one.
fn windows(entries: &[Entry]) -> Vec<Range<usize>> {
    let mut windows = Vec::new();
    let mut begin = 0;
    for (number, entry) in entries.iter().enumerate() {
        if *entry == Entry::Flush {
            if begin < number {
                windows.push(begin..number);
            }
            begin = number + 1;
        }
    }
    if begin < entries.len() {
        windows.push(begin..entries.len());
    }
    windows
}

/// Writes one entry, or a part of its sectors; returns how many.
fn apply(
    disk: &mut dyn Store,
    log: &Log<'_>,
    entry: Entry,
    torn: Option<(&mut Random, u64)>,
) -> io::Result<u64> {
    let Entry::Write { offset, length, at } = entry else { return Ok(0) };
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    log.data.read_at(at, &mut bytes)?;
    let Some((random, sector)) = torn else {
        disk.write_at(offset, &bytes)?;
        return Ok(length);
    };
    let sectors = length.div_ceil(sector);
    // Whole, cut short, or with holes.
    let manner = random.below(3);
    let end = if manner == 1 { random.below(sectors) } else { sectors };
    let mut lasted = 0;
    for (number, piece) in (0..end).zip(bytes.chunks(usize::try_from(sector).map_err(io::Error::other)?)) {
        if manner < 2 || random.below(2) == 1 {
            disk.write_at(offset + number * sector, piece)?;
            lasted += 1;
        }
    }
    Ok(lasted)
}

/// True if the disk already has the bytes of a write.
fn is_there(disk: &dyn Bytes, log: &Log<'_>, entry: Entry) -> io::Result<bool> {
    let Entry::Write { offset, length, at } = entry else { return Ok(true) };
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let (mut new, mut found) = (vec![0; length], vec![0; length]);
    log.data.read_at(at, &mut new)?;
    disk.read_at(offset, &mut found)?;
    Ok(new == found)
}

/// Pseudorandom numbers: the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
