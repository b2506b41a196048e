//! The OS image on its way from the form that media carry to the one that a slot has.
//!
//! The index of a squashfs is at its end, so it cannot be expanded while it arrives. It is stored in the slot first, behind the place of
//! the expanded image and its hash tree, and is expanded from there: this needs no space outside the slot, and only verified bytes are
//! expanded.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Result, anyhow};

use crate::execute::disk::device::{self, AlignedBuffer, BlockDevice};
use base::failure::{Class, Failure};
use base::parallel::locked;
use formats::iso9660::{Offset, Source};
use formats::squashfs::{ExpandError, Expansion};
use model::release::Payload;

/// The unit in which a part of a disk is read.
const WINDOW_BYTES: u64 = 1 << 20;
/// How many of these are kept: what several threads unpack at a time lies close together.
const WINDOWS: usize = 8;

/// A part of a disk, to be read at any place and in any length; the disk itself is only read in whole sectors.
pub(crate) struct DeviceRegion<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    length: u64,
    /// The last reads, by their places.
    windows: Mutex<VecDeque<(u64, Arc<AlignedBuffer>)>>,
}

impl<'a> DeviceRegion<'a> {
    /// The `length` bytes from `start` on, which is at a sector.
    pub(crate) fn new(device: &'a dyn BlockDevice, start: u64, length: u64) -> Self {
        Self { device, start, length, windows: Mutex::default() }
    }

    fn window(&self, at: u64) -> io::Result<Arc<AlignedBuffer>> {
        let mut windows = locked(&self.windows);
        if let Some((_, window)) = windows.iter().find(|(place, _)| *place == at) {
            return Ok(window.clone());
        }
        let sector = self.device.sector().bytes();
        let length = WINDOW_BYTES.min(self.length - at).next_multiple_of(sector);
        let mut window = AlignedBuffer::new(usize::try_from(length).map_err(io::Error::other)?);
        // The error stays whole, so that the failure of the disk is found in it.
        device::read(self.device, self.start + at, &mut window)
            .map_err(|error| io::Error::other(error.reallocate_into_boxed_dyn_error_without_backtrace()))?;
        let window = Arc::new(window);
        if windows.len() == WINDOWS {
            windows.pop_front();
        }
        windows.push_back((at, window.clone()));
        Ok(window)
    }
}

impl Source for DeviceRegion<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        if offset.0 >= self.length {
            return Ok(0);
        }
        let at = offset.0 - offset.0 % WINDOW_BYTES;
        let window = self.window(at)?;
        let end = (self.length - at).min(WINDOW_BYTES);
        let (begin, end) = (offset.0 - at, end);
        let count = usize::try_from(end - begin).map_err(io::Error::other)?.min(buffer.len());
        let begin = usize::try_from(begin).map_err(io::Error::other)?;
        buffer[..count].copy_from_slice(&window[begin..begin + count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }
}

/// Writes the expanded form of `image`, which `stored` has, to `out`.
pub(crate) fn expand(image: &Payload, stored: &DeviceRegion<'_>, out: &mut dyn Write) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let expanded = Expansion::plan(stored).and_then(|expansion| expansion.write(threads, out));
    expanded.map_err(|error| {
        let what = format!("expanding {}", image.path);
        match error {
            // The failure of the disk is inside.
            ExpandError::Read(..) => anyhow::Error::new(error).context(what),
            error => Failure::new(Class::Verification, what)
                .because(error)
                .hint("The OS image is not one that iso-builder made; build the medium again.")
                .into(),
        }
    })
}

/// Runs `produce` on a thread of its own, and `consume` with a reader of what it writes. If `consume` ends early, what is written from
/// then on fails, and only its own error is told.
pub(crate) fn piped<T>(
    produce: impl FnOnce(&mut dyn Write) -> Result<()> + Send,
    consume: impl FnOnce(&mut (dyn Read + Send)) -> Result<T>,
) -> Result<T> {
    let (mut reader, mut writer) = io::pipe()?;
    thread::scope(|scope| {
        let producing = scope.spawn(move || produce(&mut writer));
        let consumed = consume(&mut reader);
        drop(reader);
        let produced =
            producing.join().unwrap_or_else(|_| Err(anyhow!("the thread that makes the OS image ended")));
        let consumed = consumed?;
        produced.map(|()| consumed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::tests::doubles::Bench;

    #[test]
    fn a_part_of_a_disk_is_read_at_any_place_and_length() {
        for sector in [512, 4096] {
            let bench = Bench::with_sector(sector);
            let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
            let mut padded = content.clone();
            padded.resize(content.len().next_multiple_of(4096), 9);
            bench.disk.write_at(1 << 20, &padded).unwrap();
            let region = DeviceRegion::new(&bench.disk, 1 << 20, content.len() as u64);
            for (at, length) in [(0, 10), (1, 70_000), (1_048_570, 20), (2_999_990, 100), (500, 2_500_000)] {
                let mut found = vec![0; length];
                let mut done = 0;
                while done < length {
                    match region.read_at(&mut found[done..], Offset((at + done) as u64)).unwrap() {
                        0 => break,
                        count => done += count,
                    }
                }
                assert_eq!(done, length.min(content.len() - at));
                assert!(found[..done] == content[at..at + done]);
            }
            assert_eq!(region.read_at(&mut [0], Offset(content.len() as u64)).unwrap(), 0);
        }
    }

    #[test]
    fn whoever_ends_first_is_heard() {
        let fails = |_: &mut dyn Write| -> Result<()> { anyhow::bail!("no image") };
        let all = |reader: &mut (dyn Read + Send)| Ok(io::copy(reader, &mut io::sink())?);
        assert_eq!(piped(fails, all).unwrap_err().to_string(), "no image");
        let endless = |out: &mut dyn Write| Ok(io::copy(&mut io::repeat(1), out).map(drop)?);
        let stops = |_: &mut (dyn Read + Send)| -> Result<()> { anyhow::bail!("no disk") };
        assert_eq!(piped(endless, stops).unwrap_err().to_string(), "no disk");
        assert_eq!(piped(|out| Ok(out.write_all(&[1; 300_000])?), all).unwrap(), 300_000);
    }
}
