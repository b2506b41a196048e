//! What the header of an ELF program says: its processor, whether it is static, and the note with its name and version.
//! The program is not run, and only the parts of the file that hold these facts are read.
//!
//! The format is that of the System V ABI (gabi, chapters 4 and 5); the note is the package metadata of the UAPI group.
//! Only 64-bit little-endian programs are recognised, which is what the media are made of.

use std::io;
use std::os::unix::fs::FileExt;

use serde::Deserialize;

/// `e_machine` of x86-64.
const X86_64: u16 = 62;
const PROGRAM_HEADER_BYTES: u64 = 56;
/// The most program headers that are read. Linkers make fewer.
const MAX_PROGRAM_HEADERS: u16 = 256;
const MAX_NOTES_BYTES: u64 = 64 << 10;
/// Types of program headers.
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// An entry of the dynamic section that names a library.
const DT_NEEDED: u64 = 1;
/// The type of the note with package metadata, whose owner is `FDO`.
const NT_FDO_PACKAGING_METADATA: u32 = 0xcafe_1a7e;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElfProgram {
    /// The processor in the kernel's word, such as `x86_64`; none if it is one that media are not made for.
    pub(crate) processor: Option<&'static str>,
    /// Whether it runs without a loader and libraries of the system around it.
    pub(crate) is_static: bool,
    /// The content of the note; none without one.
    pub(crate) package: Option<ElfPackage>,
}

/// The package metadata of a program (UAPI group, "Package Metadata for Executable Files").
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct ElfPackage {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// A program header: what a stretch of the file is for.
struct ProgramHeader {
    kind: u32,
    offset: u64,
    size: u64,
}

/// Reads the headers and the note of `file`; `None` if it is no ELF program.
///
/// # Errors
/// Reading fails.
pub(crate) fn read(file: &impl FileExt) -> io::Result<Option<ElfProgram>> {
    let mut header = [0; 64];
    if !whole(file, 0, &mut header)? {
        return Ok(None);
    }
    let executable = matches!(u16_at(&header, 16), Some(2 | 3));
    if !header.starts_with(b"\x7fELF\x02\x01") || !executable {
        return Ok(None);
    }
    let Some(segments) = segments(file, &header)? else { return Ok(None) };
    let interpreted = segments.iter().any(|segment| segment.kind == PT_INTERP);
    let mut program = ElfProgram {
        processor: (u16_at(&header, 18) == Some(X86_64)).then_some("x86_64"),
        is_static: !interpreted,
        package: None,
    };
    for segment in &segments {
        let mut bytes = vec![0; usize::try_from(segment.size.min(MAX_NOTES_BYTES)).unwrap_or(0)];
        match segment.kind {
            PT_DYNAMIC if whole(file, segment.offset, &mut bytes)? => {
                program.is_static &= !bytes.chunks_exact(16).any(|entry| u64_at(entry, 0) == Some(DT_NEEDED));
            }
            PT_NOTE if whole(file, segment.offset, &mut bytes)? => {
                program.package = program.package.or_else(|| package(&bytes));
            }
            // The segment lies behind the end of the file: nothing is known of it.
            PT_DYNAMIC => program.is_static = false,
            _ => {}
        }
    }
    Ok(Some(program))
}

fn segments(file: &impl FileExt, header: &[u8]) -> io::Result<Option<Vec<ProgramHeader>>> {
    let (Some(start), Some(size), Some(count)) = (u64_at(header, 32), u16_at(header, 54), u16_at(header, 56))
    else {
        return Ok(None);
    };
    if u64::from(size) != PROGRAM_HEADER_BYTES || count == 0 || count > MAX_PROGRAM_HEADERS {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::from(size) * usize::from(count)];
    if !whole(file, start, &mut bytes)? {
        return Ok(None);
    }
    let segment = |entry: &[u8]| {
        Some(ProgramHeader { kind: u32_at(entry, 0)?, offset: u64_at(entry, 8)?, size: u64_at(entry, 32)? })
    };
    Ok(bytes.chunks_exact(usize::from(size)).map(segment).collect())
}

/// The package metadata among the notes of a segment.
fn package(notes: &[u8]) -> Option<ElfPackage> {
    let mut rest = notes;
    loop {
        let (owner, length) = (u32_at(rest, 0)? as usize, u32_at(rest, 4)? as usize);
        let kind = u32_at(rest, 8)?;
        let name = rest.get(12..)?.get(..owner)?;
        let content = rest.get(12..)?.get(owner.next_multiple_of(4)..)?.get(..length)?;
        if kind == NT_FDO_PACKAGING_METADATA && name == b"FDO\0" {
            let text = content.split(|byte| *byte == 0).next()?;
            return serde_json::from_slice(text).ok();
        }
        rest = rest.get(12..)?.get(owner.next_multiple_of(4)..)?.get(length.next_multiple_of(4)..)?;
    }
}

/// Fills `bytes`; false if the file ends before that.
fn whole(file: &impl FileExt, offset: u64, bytes: &mut [u8]) -> io::Result<bool> {
    if i64::try_from(offset).is_err() {
        return Ok(false);
    }
    match file.read_exact_at(bytes, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use testing::elf::{INTERPRETED, made};

    fn of(bytes: &[u8]) -> Option<ElfProgram> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(&file).unwrap()
    }

    #[test]
    fn a_static_program_tells_its_version() {
        let package = ElfPackage { name: "installer".into(), version: "1.2.3".into() };
        let told = ElfProgram { processor: Some("x86_64"), is_static: true, package: Some(package) };
        assert_eq!(of(&made(62, "installer", "1.2.3", &[])).unwrap(), told);
        assert_eq!(of(&made(183, "installer", "1.2.3", &[])).unwrap().processor, None);
        assert!(!of(&made(62, "installer", "1.2.3", &[INTERPRETED])).unwrap().is_static);
    }

    #[test]
    fn programs_of_this_system_are_read_as_what_they_are() {
        let program = read(&File::open("/bin/true").unwrap()).unwrap().unwrap();
        assert_eq!((program.processor, program.is_static), (Some("x86_64"), false));
        assert_eq!(of(b"#!/bin/sh\nexit 0\n"), None);
        assert_eq!(of(b""), None);
    }

    proptest! {
        #[test]
        fn no_damage_makes_the_reader_panic(at in 0_usize..400, byte in any::<u8>(), length in 0_usize..400) {
            let mut bytes = made(62, "installer", "1.2.3", &[INTERPRETED]);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = of(&bytes);
            bytes.truncate(length);
            let _ = of(&bytes);
        }
    }
}
