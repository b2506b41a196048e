//! The header of an ELF program: its processor, whether it is static, and the note with its name and version.
//! The program is not run.
//!
//! The note is the package metadata of the UAPI group. Only 64-bit little-endian programs are recognized, which is what the
//! media are made of.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use model::architecture::Architecture;
use object::LittleEndian;
use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use serde::Deserialize;

/// The note with package metadata, by its owner and its type.
const PACKAGE_NOTE: (&[u8], u32) = (b"FDO", 0xcafe_1a7e);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElfProgram {
    /// None if media are not made for its processor.
    pub(crate) architecture: Option<Architecture>,
    /// True if it runs without a loader and libraries of the system around it.
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

/// Reads the header and notes of `file`; `None` if it is not an ELF program, or damaged.
///
/// # Errors
/// Reading fails.
pub(crate) fn read(file: &File) -> io::Result<Option<ElfProgram>> {
    let failed = Cell::new(None);
    let found = program(&ReadCache::new(NotingReader { file, failed: &failed }));
    failed.take().map_or_else(|| Ok(found.ok().flatten()), Err)
}

/// The architecture with this number in ELF (`e_machine`); none if media are not made for it.
pub(crate) fn architecture(machine: u16) -> Option<Architecture> {
    match machine {
        machine if machine == EM_X86_64.0 => Some(Architecture::Amd64),
        machine if machine == EM_AARCH64.0 => Some(Architecture::Arm64),
        _ => None,
    }
}

/// A reader that keeps the error of reading, of which the parser only says that there was one.
struct NotingReader<'a> {
    file: &'a File,
    failed: &'a Cell<Option<io::Error>>,
}

impl Read for NotingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer).map_err(|error| {
            let told = error.kind().into();
            self.failed.set(Some(error));
            told
        })
    }
}

impl Seek for NotingReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn program<'data, R: ReadRef<'data>>(bytes: R) -> object::read::Result<Option<ElfProgram>> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    let endian = header.endian()?;
    if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
        return Ok(None);
    }
    let mut program =
        ElfProgram { architecture: architecture(header.e_machine(endian).0), is_static: true, package: None };
    for segment in header.program_headers(endian, bytes)? {
        program.is_static &= segment.p_type(endian) != PT_INTERP;
        if let Some(entries) = segment.dynamic(endian, bytes)? {
            program.is_static &= entries.iter().all(|entry| entry.d_tag(endian) != DT_NEEDED);
        }
        for note in segment.notes(endian, bytes)?.into_iter().flatten() {
            let note = note?;
            if (note.name(), note.n_type(endian).0) == PACKAGE_NOTE && program.package.is_none() {
                let text = note.desc().split(|byte| *byte == 0).next().unwrap_or_default();
                program.package = serde_json::from_slice(text).ok();
            }
        }
    }
    Ok(Some(program))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use proptest::prelude::*;

    use super::*;
    use testing::elf::{INTERPRETED, made};

    fn of(bytes: &[u8]) -> Option<ElfProgram> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        read(&file).unwrap()
    }

    #[test]
    fn a_static_program_tells_its_version() {
        let package = ElfPackage { name: "installer".into(), version: "1.2.3".into() };
        let told =
            ElfProgram { architecture: Some(Architecture::Amd64), is_static: true, package: Some(package) };
        assert_eq!(of(&made(62, "installer", "1.2.3", &[])).unwrap(), told);
        for (machine, architecture) in [(183, Some(Architecture::Arm64)), (243, None)] {
            assert_eq!(of(&made(machine, "installer", "1.2.3", &[])).unwrap().architecture, architecture);
        }
        assert!(!of(&made(62, "installer", "1.2.3", &[INTERPRETED])).unwrap().is_static);
    }

    #[test]
    fn programs_of_this_system_are_read_as_what_they_are() {
        let program = read(&File::open("/bin/true").unwrap()).unwrap().unwrap();
        assert_eq!((program.architecture, program.is_static), (Some(Architecture::of_this_program()), false));
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
