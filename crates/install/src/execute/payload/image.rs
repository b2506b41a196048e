//! Runs of bytes that are streamed to the disk and from it, while both ends work.

use std::io::{self, Read};
use std::sync::mpsc;

use anyhow::Result;

use crate::execute::disk::device::{self, AlignedBuffer, BlockDevice, CHUNK_BYTES};
use base::cancel::Cancel;
use base::progress::Step;

/// The number of chunks on their way from the reader to the disk.
const CHUNKS_IN_FLIGHT: usize = 3;

struct Chunk {
    buffer: AlignedBuffer,
    filled: usize,
}

/// Writes what `reader` gives from byte `start` of the disk on, with the last sector padded with zeros. Reading goes on while the disk
/// writes. Does not flush.
pub(crate) fn write(
    device: &dyn BlockDevice,
    start: u64,
    mut reader: impl Read + Send,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    let sector = usize::try_from(device.sector().bytes())?;
    let (mut offset, mut ended) = (start, false);
    in_flight(
        CHUNKS_IN_FLIGHT,
        move |buffer| {
            if ended {
                return Ok(None);
            }
            // An error of the stream carries its own class.
            let filled = fill(&mut reader, buffer)?;
            ended = filled < buffer.len();
            Ok(Some(filled))
        },
        |buffer, filled| {
            cancel.check()?;
            let padded = filled.next_multiple_of(sector);
            buffer[filled..padded].fill(0);
            device::write(device, offset, &buffer[..padded])?;
            offset += filled as u64;
            step.advance(filled as u64);
            Ok(())
        },
    )
}

/// Passes `count` buffers of [`CHUNK_BYTES`] bytes from `give`, on a thread of its own, to `take`, so that both work in parallel.
/// `give` returns the number of bytes that it has filled; `None` at the end.
pub(super) fn in_flight(
    count: usize,
    mut give: impl FnMut(&mut [u8]) -> Result<Option<usize>> + Send,
    mut take: impl FnMut(&mut [u8], usize) -> Result<()>,
) -> Result<()> {
    let (give_back, empty) = mpsc::channel();
    let (hand_over, full) = mpsc::sync_channel(count);
    for _ in 0..count {
        let _ = give_back.send(AlignedBuffer::new(CHUNK_BYTES));
    }
    std::thread::scope(|scope| {
        // Ends after the last bytes, after an error, or when the receiver has stopped.
        scope.spawn(move || {
            for mut buffer in empty {
                let Some(filled) = give(&mut buffer).transpose() else { break };
                let failed = filled.is_err();
                let sent = hand_over.send(filled.map(|filled| Chunk { buffer, filled }));
                if failed || sent.is_err() {
                    break;
                }
            }
        });
        // Moved in here so that the giver learns of an error by the closed channels.
        let (full, give_back) = (full, give_back);
        for chunk in &full {
            let Chunk { mut buffer, filled } = chunk?;
            take(&mut buffer, filled)?;
            let _ = give_back.send(buffer);
        }
        Ok(())
    })
}

/// Reads until `buffer` is full or the stream ends.
pub(crate) fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(filled),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Calls `visit` with the offset and the bytes of each chunk of the `length` bytes from `start` on, while the next ones are read.
pub(super) fn each_chunk(
    device: &dyn BlockDevice,
    (start, length): (u64, u64),
    cancel: &Cancel,
    mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let sector = usize::try_from(device.sector().bytes())?;
    let (mut read, mut visited) = (0, 0);
    in_flight(
        CHUNKS_IN_FLIGHT,
        move |buffer| {
            if read == length {
                return Ok(None);
            }
            let count = usize::try_from((length - read).min(CHUNK_BYTES as u64))?;
            let padded = count.next_multiple_of(sector);
            device::read(device, start + read, &mut buffer[..padded])?;
            read += count as u64;
            Ok(Some(count))
        },
        |buffer, filled| {
            cancel.check()?;
            visit(visited, &buffer[..filled])?;
            visited += filled as u64;
            Ok(())
        },
    )
}
