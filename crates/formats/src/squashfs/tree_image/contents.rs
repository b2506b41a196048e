//! Where the data of each file lies in the image, and reading it from the files.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use base::parallel;

use super::entries::{Entries, ImageEntry};
use super::error::TreeImageError;
use crate::squashfs::data::STORED;
use crate::squashfs::superblock;

/// The length of a block of data: what `mksquashfs` takes unless told otherwise.
pub(super) const BLOCK_BYTES: u32 = 128 << 10;
/// How much of a block is read before the rest, to see whether it is a hole.
const FIRST_BYTES: usize = 4096;

/// The data of all files, one piece after the other.
pub(super) struct Contents {
    /// Of each entry; that of an entry without data is empty.
    places: Vec<DataPlace>,
    files: Vec<PathBuf>,
    pieces: Vec<Piece>,
    /// Where each fragment begins in the image, and its length in bytes.
    fragments: Vec<(u64, u32)>,
    length: u64,
}

/// Where the data of a file is.
#[derive(Clone, Default)]
pub(super) struct DataPlace {
    /// Of its first block that is no hole, in the image; 0 if there is none.
    pub(super) start: u64,
    /// The length of each block, as the format has it; 0 of a hole.
    pub(super) words: Vec<u32>,
    pub(super) bytes_of_holes: u64,
    pub(super) fragment: Option<FragmentPlace>,
}

#[derive(Clone, Copy)]
pub(super) struct FragmentPlace {
    pub(super) number: u32,
    pub(super) offset: u32,
}

/// A part of a file, and where it lies among the data.
struct Piece {
    at: u64,
    file: usize,
    /// In the file.
    offset: u64,
    length: u32,
}

/// What has to be known of a file before its data has a place.
struct FileSurvey {
    /// BLAKE3 of the content, where another file is as long.
    digest: Option<[u8; blake3::OUT_LEN]>,
    /// The blocks that have zeros only.
    holes: Vec<bool>,
}

impl Contents {
    /// Reads the files on `threads` processors, as far as it must be known whether they are equal or have holes.
    pub(super) fn of(entries: &Entries, threads: usize) -> Result<Self, TreeImageError> {
        let mut files: Vec<(usize, &ImageEntry, u64)> = Vec::new();
        let mut lengths: HashMap<u64, usize> = HashMap::new();
        for (number, entry) in entries.iter().enumerate() {
            if let Some(length) = entry.file_length().filter(|_| entry.first == number) {
                files.push((number, entry, length));
                *lengths.entry(length).or_default() += 1;
            }
        }
        let surveys = parallel::map(&files, threads, |(_, entry, length)| {
            let is_alone = lengths.get(length).is_none_or(|count| *count == 1);
            FileSurvey::of(&entries.host_path(entry), *length, is_alone).map_err(|error| {
                let path = Path::new("/").join(&entry.path);
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => TreeImageError::Changed(path),
                    _ => TreeImageError::Read { path, source: error },
                }
            })
        })?;
        let mut contents = Self {
            places: vec![DataPlace::default(); entries.count()],
            files: Vec::with_capacity(files.len()),
            pieces: Vec::new(),
            fragments: Vec::new(),
            length: 0,
        };
        let mut packer = Packer::default();
        let mut known: HashMap<_, usize> = HashMap::new();
        for ((number, entry, length), survey) in files.into_iter().zip(surveys) {
            let content = survey.digest.map(|digest| (length, digest));
            let equal = content.and_then(|content| known.get(&content));
            let place = match equal {
                Some(equal) => contents.places[*equal].clone(),
                None => {
                    let file = contents.files.len();
                    contents.files.push(entries.host_path(entry));
                    match u32::try_from(length).ok().filter(|length| *length < BLOCK_BYTES) {
                        Some(length) => contents.add_to_fragment(&mut packer, file, length),
                        None => contents.add_blocks(file, length, &survey.holes),
                    }
                }
            };
            contents.places[number] = place;
            if let Some(content) = content {
                known.entry(content).or_insert(number);
            }
        }
        contents.close_fragment(&mut packer);
        Ok(contents)
    }

    fn add_blocks(&mut self, file: usize, length: u64, holes: &[bool]) -> DataPlace {
        let mut place = DataPlace::default();
        let mut offset = 0;
        for is_hole in holes {
            let block = u32::try_from(length - offset).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
            if *is_hole {
                place.words.push(0);
                place.bytes_of_holes += u64::from(block);
            } else {
                if place.start == 0 {
                    place.start = superblock::LENGTH + self.length;
                }
                place.words.push(block | STORED);
                self.pieces.push(Piece { at: self.length, file, offset, length: block });
                self.length += u64::from(block);
            }
            offset += u64::from(block);
        }
        place
    }

    fn add_to_fragment(&mut self, packer: &mut Packer, file: usize, length: u32) -> DataPlace {
        if packer.length + length > BLOCK_BYTES {
            self.close_fragment(packer);
        }
        let number = u32::try_from(self.fragments.len()).unwrap_or(u32::MAX);
        let fragment = Some(FragmentPlace { number, offset: packer.length });
        packer.files.push((file, length));
        packer.length += length;
        DataPlace { fragment, ..DataPlace::default() }
    }

    /// Puts the files of the fragment behind the data that there is.
    fn close_fragment(&mut self, packer: &mut Packer) {
        let Packer { files, length } = std::mem::take(packer);
        if length == 0 {
            return;
        }
        self.fragments.push((superblock::LENGTH + self.length, length));
        for (file, length) in files {
            self.pieces.push(Piece { at: self.length, file, offset: 0, length });
            self.length += u64::from(length);
        }
    }

    /// Of all data, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn place(&self, entry: usize) -> &DataPlace {
        &self.places[entry]
    }

    /// The table of fragments.
    pub(super) fn fragments(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for (start, length) in &self.fragments {
            table.extend(start.to_le_bytes());
            table.extend((length | STORED).to_le_bytes());
            table.extend(0_u32.to_le_bytes());
        }
        table
    }

    /// Fills `buffer` with the data at `at`, or less of it where the data ends.
    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        let first = self.pieces.partition_point(|piece| piece.at + u64::from(piece.length) <= at);
        for piece in self.pieces.iter().skip(first) {
            let skipped = (at + done as u64).saturating_sub(piece.at);
            let left = usize::try_from(u64::from(piece.length) - skipped).unwrap_or(usize::MAX);
            let count = left.min(buffer.len() - done);
            if count == 0 {
                break;
            }
            let file = File::open(&self.files[piece.file])?;
            file.read_exact_at(&mut buffer[done..done + count], piece.offset + skipped)?;
            done += count;
        }
        Ok(done)
    }
}

/// The files of a fragment that is not full.
#[derive(Default)]
struct Packer {
    files: Vec<(usize, u32)>,
    length: u32,
}

impl FileSurvey {
    fn of(path: &Path, length: u64, is_alone: bool) -> io::Result<Self> {
        let mut survey = Self { digest: None, holes: Vec::new() };
        let has_blocks = length >= u64::from(BLOCK_BYTES);
        if is_alone && !has_blocks {
            return Ok(survey);
        }
        let file = File::open(path)?;
        let mut hasher = (!is_alone).then(blake3::Hasher::new);
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut at = 0;
        while at < length {
            let count = usize::try_from(length - at).map_or(block.len(), |left| left.min(block.len()));
            let block = &mut block[..count];
            let first = if hasher.is_some() { count } else { count.min(FIRST_BYTES) };
            file.read_exact_at(&mut block[..first], at)?;
            let mut is_hole = is_zero(&block[..first]);
            if is_hole && first < count {
                file.read_exact_at(&mut block[first..], at + first as u64)?;
                is_hole = is_zero(&block[first..]);
            }
            if has_blocks {
                survey.holes.push(is_hole);
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(block);
            }
            at += count as u64;
        }
        survey.digest = hasher.map(|hasher| *hasher.finalize().as_bytes());
        Ok(survey)
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
