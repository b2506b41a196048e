//! Changing the signatures of an ISO in place.
//!
//! The text begins in the first sector, which a drive writes as a whole. It is emptied first and written last, each time after
//! a flush: at every moment readers find the old text, the new one, or a region that does not begin with a text.

use std::io;

use crate::media::customize::change::MediumWriter;

/// The smallest unit that every drive writes as a whole, in bytes.
const SECTOR: usize = 512;

/// Makes the bytes at `at` of `target` those of `region`; returns whether they were others.
pub(super) fn replace(target: &dyn MediumWriter, at: u64, region: &[u8]) -> io::Result<bool> {
    let mut there = vec![0; region.len()];
    target.read(&mut there, at)?;
    if there == region {
        return Ok(false);
    }
    let (first, rest) = region.split_at(region.len().min(SECTOR));
    target.write(&vec![b'\n'; first.len()], at)?;
    target.flush()?;
    target.write(rest, at + first.len() as u64)?;
    target.flush()?;
    target.write(first, at)?;
    target.flush()?;
    target.read(&mut there, at)?;
    match there == region {
        true => Ok(true),
        false => Err(io::Error::other("what was written reads back differently")),
    }
}
