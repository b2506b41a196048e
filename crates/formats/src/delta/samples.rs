//! Which part of the old image a segment of the new one is most like.
//!
//! Content moves when something before it grows. So both images are sampled at content-defined places: where a rolling hash
//! of the last 64 bytes has many zeros. Equal content has equal samples, wherever it is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// One place in 16 KiB is a sample.
const ZERO_BITS: u32 = 14;

/// The addend of each byte value to the hash.
const GEAR: [u64; 256] = gear();

#[allow(clippy::cast_possible_truncation, reason = "a counter up to 256")]
const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        // SplitMix64, the usual way to spread small numbers.
        let mut value = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[at] = value ^ (value >> 31);
        at += 1;
    }
    table
}

/// Samples a run of bytes that comes in pieces.
#[derive(Default)]
pub(super) struct Sampler(u64);

impl Sampler {
    /// Calls `found` with each sample of `bytes` and its place in them.
    pub(super) fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(u64, usize)) {
        for (at, byte) in bytes.iter().enumerate() {
            // The hash shifts by one bit per byte, so it depends on the last 64 bytes.
            self.0 = (self.0 << 1).wrapping_add(GEAR[usize::from(*byte)]);
            if self.0 >> (u64::BITS - ZERO_BITS) == 0 {
                found(self.0, at);
            }
        }
    }
}

/// The places of an image's samples. A sample that occurs more than once has no place.
#[derive(Default)]
pub(super) struct SampleIndex(HashMap<u64, Option<u64>>);

impl SampleIndex {
    pub(super) fn add(&mut self, sample: u64, at: u64) {
        match self.0.entry(sample) {
            Entry::Vacant(entry) => drop(entry.insert(Some(at))),
            Entry::Occupied(mut entry) => drop(entry.insert(None)),
        }
    }

    /// The start of the `length` bytes that have the most samples in common with `segment`; `usual` if none match.
    pub(super) fn alike(&self, segment: &[u8], length: u64, usual: u64) -> u64 {
        let mut places = Vec::new();
        Sampler::default().feed(segment, |sample, _| places.extend(self.0.get(&sample).copied().flatten()));
        places.sort_unstable();
        let (mut best, mut first) = (0..0, 0);
        for (last, place) in places.iter().enumerate() {
            while place - places[first] > length {
                first += 1;
            }
            if last + 1 - first > best.len() {
                best = first..last + 1;
            }
        }
        match &places[best] {
            // Put the matches in the middle: what surrounds them may match too.
            [first, .., last] => first.saturating_sub((length - (last - first)) / 2),
            _ => usual,
        }
    }
}
