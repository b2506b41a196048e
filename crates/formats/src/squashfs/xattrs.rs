//! Extended attributes: a table of names and values, and one that says by number where an inode's attributes begin.

use std::collections::BTreeSet;

use super::bytes::{put, u16_at, u32_at, u64_at};
use super::error::{ExpandError, ExpandResult};
use super::metadata::{IndexedTable, MetadataReader, Table};
use crate::iso9660::Source;

/// Before the index: where names and values begin, the number of sets, and four unused bytes.
pub(super) const HEADER_BYTES: usize = 16;
const SET_BYTES: usize = 16;
/// The bit of a name whose value is stored elsewhere, once for several.
const ELSEWHERE: u16 = 1 << 8;

#[derive(Clone)]
pub(super) struct AttributeTables {
    pub(super) values: Table,
    pub(super) sets: IndexedTable,
}

impl AttributeTables {
    /// Reads the attributes whose header is at `at`, and moves what points into them.
    pub(super) fn read<S: Source>(reader: &mut MetadataReader<'_, S>, at: u64) -> ExpandResult<Self> {
        let header = reader.plain(at, HEADER_BYTES)?;
        let (start, count) = (u64_at(&header, 0)?, u32_at(&header, 8)?);
        if count == 0 {
            return Err(ExpandError::Damaged("it has a table of attributes without any"));
        }
        let length = (count as usize).saturating_mul(SET_BYTES);
        let sets = reader.indexed(at.saturating_add(HEADER_BYTES as u64), length)?;
        let values = reader.table(start, sets.first)?;
        let mut attributes = Self { values, sets };
        attributes.move_places()?;
        Ok(attributes)
    }

    pub(super) fn count(&self) -> u64 {
        (self.sets.bytes.len() / SET_BYTES) as u64
    }

    fn move_places(&mut self) -> ExpandResult<()> {
        let (values, sets) = (&mut self.values, &mut self.sets.bytes);
        let (mut seen, mut elsewhere, mut walked) = (BTreeSet::new(), Vec::new(), 0);
        for set in (0..sets.len()).step_by(SET_BYTES) {
            let (reference, count) = (u64_at(sets, set)?, u32_at(sets, set + 8)?);
            #[allow(clippy::cast_possible_truncation)]
            let mut at = values.position(reference >> 16, reference as u16)?;
            put(sets, set, values.moved_reference(reference)?.to_le_bytes())?;
            if !seen.insert(at) {
                continue;
            }
            let begin = at;
            for _ in 0..count {
                let (kind, name) = (u16_at(&values.bytes, at)?, u16_at(&values.bytes, at + 2)?);
                at += 4 + usize::from(name);
                if kind & ELSEWHERE != 0 {
                    elsewhere.push(at + 4);
                }
                at = (at + 4).saturating_add(u32_at(&values.bytes, at)? as usize);
                // Overlapping sets could be walked without end.
                if walked + (at - begin) > values.bytes.len() {
                    return Err(ExpandError::Damaged("attributes overlap"));
                }
            }
            walked += at - begin;
        }
        for at in elsewhere {
            let moved = values.moved_reference(u64_at(&values.bytes, at)?)?;
            put(&mut values.bytes, at, moved.to_le_bytes())?;
        }
        Ok(())
    }
}
