//! A disk in a sparse file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nqrust_checker::crash::Entry;

use crate::install::BlockDevice;
use crate::plan::{PartitionName, Plan, SectorSize, Target};
use crate::size::ByteSize;

/// What happened on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::install) enum Act {
    Write { offset: u64, length: usize, esp_empty: bool },
    Flush,
}

/// A disk in a sparse file that remembers every write and fails where it is told to.
pub(in crate::install) struct TestDisk {
    pub(in crate::install) file: tempfile::NamedTempFile,
    pub(in crate::install) size: ByteSize,
    pub(in crate::install) sector: SectorSize,
    pub(in crate::install) esp: u64,
    pub(in crate::install) acts: Mutex<Vec<Act>>,
    pub(in crate::install) writes: AtomicUsize,
    pub(in crate::install) fail_write: Option<usize>,
    /// Reads of this byte see another value.
    pub(in crate::install) rotten: Option<u64>,
    /// What reached the disk, where a test asks for that.
    pub(in crate::install) recording: Option<Mutex<Recording>>,
}

/// Requests to a disk in order, and the bytes that were written, one after the other.
#[derive(Default)]
pub(in crate::install) struct Recording {
    pub(in crate::install) entries: Vec<Entry>,
    pub(in crate::install) data: Vec<u8>,
}

impl Recording {
    /// Where on the disk `bytes` were written last.
    pub(in crate::install) fn place_of(&self, bytes: &[u8]) -> u64 {
        let writes = self.entries.iter().rev().filter_map(|entry| match entry {
            Entry::Write { offset, length, at } => Some((*offset, *at as usize, *length as usize)),
            Entry::Flush => None,
        });
        let mut found = writes.filter_map(|(offset, at, length)| {
            let data = &self.data[at..at + length];
            data.windows(bytes.len()).position(|here| here == bytes).map(|place| offset + place as u64)
        });
        found.next().unwrap()
    }
}

impl TestDisk {
    pub(in crate::install) fn new(plan: &Plan) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        // An old system that boots.
        file.as_file().write_all_at(&[0xeb; 4096], 0).unwrap();
        let esp = plan.partition(PartitionName::Esp).unwrap().start.get();
        file.as_file().write_all_at(&[0xeb; 512], esp).unwrap();
        Self { esp, ..Self::other(&plan.disk, file) }
    }

    /// A disk that is not the system's.
    pub(in crate::install) fn other(target: &Target, file: tempfile::NamedTempFile) -> Self {
        file.as_file().set_len(target.size.get()).unwrap();
        Self {
            file,
            size: target.size,
            sector: target.sector,
            esp: 0,
            acts: Mutex::default(),
            writes: AtomicUsize::new(0),
            fail_write: None,
            rotten: None,
            recording: None,
        }
    }

    pub(in crate::install) fn file(&self) -> &File {
        self.file.as_file()
    }

    pub(in crate::install) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub(in crate::install) fn committed(&self) -> bool {
        self.bytes(self.esp, 512)[510..] == [0x55, 0xaa]
    }

    pub(in crate::install) fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let sector = self.sector.bytes();
        assert!(offset.is_multiple_of(sector) && (length as u64).is_multiple_of(sector), "{offset} {length}");
        match offset + length as u64 <= self.size.get() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(nix::libc::ENOSPC)),
        }
    }
}

impl BlockDevice for TestDisk {
    fn size(&self) -> ByteSize {
        self.size
    }

    fn sector(&self) -> SectorSize {
        self.sector
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        self.file().read_exact_at(buffer, offset)?;
        let place = self.rotten.and_then(|rotten| usize::try_from(rotten.checked_sub(offset)?).ok());
        if let Some(byte) = place.and_then(|place| buffer.get_mut(place)) {
            *byte ^= 1;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        if self.fail_write == Some(self.writes.fetch_add(1, Ordering::Relaxed)) {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        self.file().write_all_at(bytes, offset)?;
        if let Some(recording) = &self.recording {
            let Recording { entries, data } = &mut *recording.lock().unwrap();
            let (length, at) = (bytes.len() as u64, data.len() as u64);
            entries.push(Entry::Write { offset, length, at });
            data.extend_from_slice(bytes);
        }
        let esp_empty = self.bytes(self.esp, 512).iter().all(|byte| *byte == 0);
        self.acts.lock().unwrap().push(Act::Write { offset, length: bytes.len(), esp_empty });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.acts.lock().unwrap().push(Act::Flush);
        if let Some(recording) = &self.recording {
            recording.lock().unwrap().entries.push(Entry::Flush);
        }
        Ok(())
    }
}

impl BlockDevice for &TestDisk {
    fn size(&self) -> ByteSize {
        (**self).size()
    }
    fn sector(&self) -> SectorSize {
        (**self).sector()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, bytes)
    }
    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}
