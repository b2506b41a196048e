//! A disk in a sparse file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nqrust_checker::crash::Entry;

use crate::execute::BlockDevice;
use crate::execute::disk::device::Layer;
use crate::plan::{Partition, PartitionName, Plan, Target};

/// One request to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Write { offset: u64, length: usize, esp_empty: bool },
    Flush,
}

/// A fault that happens once, at a request counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A read fails with this errno.
    Read(usize, i32),
    Write(usize, i32),
    Flush(usize, i32),
    /// A write is reported as done and is lost.
    Vanish(usize),
    /// Only the first sector of a write reaches the disk.
    Tear(usize),
    /// Each request takes this many milliseconds.
    Slow(u64),
}

/// A disk in a sparse file that records every write and has one fault.
pub(crate) struct TestDisk {
    pub(crate) file: tempfile::NamedTempFile,
    pub(crate) target: Target,
    pub(crate) esp: u64,
    pub(crate) acts: Mutex<Vec<Act>>,
    pub(crate) writes: AtomicUsize,
    pub(crate) reads: AtomicUsize,
    pub(crate) flushes: AtomicUsize,
    pub(crate) fail_write: Option<usize>,
    pub(crate) fault: Option<Fault>,
    /// Reads of this byte return another value.
    pub(crate) rotten: Option<u64>,
    /// Reads of this byte fail until it is written.
    pub(crate) unreadable: Mutex<Option<u64>>,
    /// What reached the disk, if a test asks for that.
    pub(crate) recording: Option<Mutex<Recording>>,
}

/// Requests to a disk in order, and the bytes that were written, one after the other.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) entries: Vec<Entry>,
    pub(crate) data: Vec<u8>,
}

impl Recording {
    /// Where in a partition `bytes` were written last.
    #[track_caller]
    pub(crate) fn place_of(&self, bytes: &[u8], partition: &Partition) -> u64 {
        let inside = partition.start.get()..partition.end().get();
        let writes = self.entries.iter().rev().filter_map(|entry| match entry {
            Entry::Write { offset, length, at } if inside.contains(offset) => {
                Some((*offset, *at as usize, *length as usize))
            }
            _ => None,
        });
        let mut found = writes.filter_map(|(offset, at, length)| {
            let data = &self.data[at..at + length];
            data.windows(bytes.len()).position(|here| here == bytes).map(|place| offset + place as u64)
        });
        found.next().expect("bytes that were written")
    }
}

impl TestDisk {
    pub(crate) fn new(plan: &Plan) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        // An old system that boots.
        file.as_file().write_all_at(&[0xeb; 4096], 0).unwrap();
        let esp = plan.partition(PartitionName::Esp).unwrap().start.get();
        file.as_file().write_all_at(&[0xeb; 512], esp).unwrap();
        Self { esp, ..Self::other(&plan.disk, file) }
    }

    pub(crate) fn other(target: &Target, file: tempfile::NamedTempFile) -> Self {
        file.as_file().set_len(target.size.get()).unwrap();
        Self {
            file,
            target: target.clone(),
            esp: 0,
            acts: Mutex::default(),
            writes: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
            fail_write: None,
            fault: None,
            rotten: None,
            unreadable: Mutex::default(),
            recording: None,
        }
    }

    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    pub(crate) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub(crate) fn committed(&self) -> bool {
        self.bytes(self.esp, 512)[510..] == [0x55, 0xaa]
    }

    fn unreadable_in(&self, offset: u64, length: usize) -> bool {
        let unreadable = *self.unreadable.lock().unwrap();
        unreadable.is_some_and(|byte| (offset..offset + length as u64).contains(&byte))
    }

    /// Waits, and fails if this is the fault.
    fn fail(&self, is_now: impl Fn(Fault) -> bool) -> io::Result<()> {
        match self.fault {
            Some(Fault::Slow(millis)) => std::thread::sleep(std::time::Duration::from_millis(millis)),
            Some(fault @ (Fault::Read(_, number) | Fault::Write(_, number) | Fault::Flush(_, number)))
                if is_now(fault) =>
            {
                return Err(io::Error::from_raw_os_error(number));
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let sector = self.target.sector.bytes();
        assert!(offset.is_multiple_of(sector) && (length as u64).is_multiple_of(sector), "{offset} {length}");
        match offset + length as u64 <= self.target.size.get() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(nix::libc::ENOSPC)),
        }
    }
}

impl BlockDevice for TestDisk {
    fn target(&self) -> &Target {
        &self.target
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        self.fail(|fault| matches!(fault, Fault::Read(one, _) if one == number))?;
        if self.unreadable_in(offset, buffer.len()) {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        self.file().read_exact_at(buffer, offset)?;
        let place = self.rotten.and_then(|rotten| usize::try_from(rotten.checked_sub(offset)?).ok());
        if let Some(byte) = place.and_then(|place| buffer.get_mut(place)) {
            *byte ^= 1;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        if self.fail_write == Some(number) {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        self.fail(|fault| matches!(fault, Fault::Write(one, _) if one == number))?;
        let comes = match self.fault {
            Some(Fault::Vanish(one)) if one == number => 0,
            Some(Fault::Tear(one)) if one == number => usize::try_from(self.target.sector.bytes()).unwrap(),
            _ => bytes.len(),
        };
        self.file().write_all_at(&bytes[..comes], offset)?;
        if self.unreadable_in(offset, comes) {
            *self.unreadable.lock().unwrap() = None;
        }
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
        let number = self.flushes.fetch_add(1, Ordering::Relaxed);
        self.fail(|fault| matches!(fault, Fault::Flush(one, _) if one == number))?;
        self.acts.lock().unwrap().push(Act::Flush);
        if let Some(recording) = &self.recording {
            recording.lock().unwrap().entries.push(Entry::Flush);
        }
        Ok(())
    }
}

impl Layer for &TestDisk {
    fn below(&self) -> &dyn BlockDevice {
        *self
    }
    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, bytes)
    }
}
