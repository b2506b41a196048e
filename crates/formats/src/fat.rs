//! FAT volumes, made from a list of files; the same input gives the same bytes.
//!
//! For the EFI system partition of a node and that of an ISO. They have few files, so `fatfs` is fast enough.

mod dots;

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use fatfs::{Date, DateTime, FatType, FormatVolumeOptions, FsOptions, Time, TimeProvider};

use base::size::ByteSize;

/// The smallest FAT32 volume of 4096-byte sectors, so one size does for every disk.
pub const MINIMUM: ByteSize = ByteSize::mib(260);

#[derive(Clone, Copy, Debug)]
pub struct FatVolume {
    /// Up to 11 upper-case ASCII characters.
    pub label: &'static str,
    pub id: u32,
    /// Bytes per sector: 512 or 4096.
    pub sector: u16,
    /// Time stamp of every entry, in seconds since 1970.
    pub epoch: u64,
    pub kind: FatKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FatKind {
    /// FAT32, which every firmware reads on a disk. Needs at least [`MINIMUM`].
    #[default]
    Fat32,
    /// FAT12 or FAT16, depending on the size, for small images.
    BySize,
}

#[allow(missing_debug_implementations)]
pub struct FatFile<'a> {
    /// Path with `/`; directories on the way are made.
    pub path: String,
    /// The content, read to its end.
    pub content: Box<dyn Read + 'a>,
}

impl<'a> FatFile<'a> {
    pub fn new(path: impl Into<String>, content: impl Read + 'a) -> Self {
        Self { path: path.into(), content: Box::new(content) }
    }
}

/// Formats `device` (as long as it is) and writes `files` in the order given.
/// The caller flushes the device afterwards.
pub fn write_volume(
    device: &mut (impl Read + Write + Seek),
    volume: FatVolume,
    files: Vec<FatFile<'_>>,
) -> Result<()> {
    ensure!(volume.label.len() <= 11, "the volume label {:?} is longer than 11 characters", volume.label);
    let mut label = [b' '; 11];
    label[..volume.label.len()].copy_from_slice(volume.label.as_bytes());
    let mut options = FormatVolumeOptions::new()
        .volume_label(label)
        .volume_id(volume.id)
        .bytes_per_sector(volume.sector)
        .bytes_per_cluster(u32::from(volume.sector).max(4096));
    if volume.kind == FatKind::Fat32 {
        options = options.fat_type(FatType::Fat32);
    }
    device.rewind()?;
    fatfs::format_volume(&mut *device, options).context("formatting a FAT volume")?;
    device.rewind()?;
    let options = FsOptions::new().time_provider(fixed_time(volume.epoch)).update_accessed_date(false);
    let file_system = fatfs::FileSystem::new(&mut *device, options).context("opening the new volume")?;
    for file in files {
        write_file(&file_system.root_dir(), file)?;
    }
    file_system.unmount().context("finishing a FAT volume")?;
    dots::repair(device).context("finishing the directories of a FAT volume")?;
    device.flush()?;
    Ok(())
}

fn write_file<D: Read + Write + Seek>(root: &fatfs::Dir<'_, D>, mut file: FatFile<'_>) -> Result<()> {
    let mut parent = String::new();
    if let Some((directories, _)) = file.path.rsplit_once('/') {
        for name in directories.split('/') {
            if !parent.is_empty() {
                parent.push('/');
            }
            parent.push_str(name);
            root.create_dir(&parent).with_context(|| format!("making {parent} on a FAT volume"))?;
        }
    }
    let what = || format!("writing {} to a FAT volume", file.path);
    let mut entry = root.create_file(&file.path).with_context(what)?;
    entry.truncate().with_context(what)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file
            .content
            .read(&mut buffer)
            .with_context(|| format!("reading the content of {}", file.path))?;
        if count == 0 {
            break;
        }
        entry.write_all(&buffer[..count]).with_context(what)?;
    }
    entry.flush().with_context(what)
}

/// A clock that always returns the same time, in seconds since 1970.
#[derive(Debug)]
struct FixedTime(u64);

/// `fatfs` needs a provider with a static lifetime: one is kept for each epoch, and there are few. Volumes with different
/// epochs may be written concurrently.
fn fixed_time(epoch: u64) -> &'static FixedTime {
    static CLOCKS: Mutex<BTreeMap<u64, &'static FixedTime>> = Mutex::new(BTreeMap::new());
    let mut clocks = CLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    clocks.entry(epoch).or_insert_with(|| Box::leak(Box::new(FixedTime(epoch))))
}

impl TimeProvider for FixedTime {
    fn get_current_date(&self) -> Date {
        self.get_current_date_time().date
    }

    fn get_current_date_time(&self) -> DateTime {
        let epoch = i64::try_from(self.0).unwrap_or(0);
        let now =
            jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(epoch).unwrap_or_default());
        // FAT counts years from 1980 and seconds in steps of two.
        let field = |value: i16| u16::try_from(value).unwrap_or(0);
        let date = Date {
            year: field(now.year().max(1980)),
            month: field(now.month().into()),
            day: field(now.day().into()),
        };
        let time = Time {
            hour: field(now.hour().into()),
            min: field(now.minute().into()),
            sec: field((now.second() / 2 * 2).into()),
            millis: 0,
        };
        DateTime { date, time }
    }
}

/// A part of a device that behaves like a device of its own.
#[derive(Debug)]
pub struct DeviceRegion<D> {
    device: D,
    start: u64,
    length: u64,
    position: u64,
}

impl<D> DeviceRegion<D> {
    /// The bytes `start .. start + length` of `device`.
    pub fn new(device: D, start: u64, length: u64) -> Self {
        Self { device, start, length, position: 0 }
    }

    fn clip(&self, wanted: usize) -> usize {
        let left = self.length.saturating_sub(self.position);
        wanted.min(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

impl<D: Read + Seek> Read for DeviceRegion<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.clip(buffer.len());
        self.device.seek(SeekFrom::Start(self.start + self.position))?;
        let count = self.device.read(&mut buffer[..length])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl<D: Write + Seek> Write for DeviceRegion<D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.clip(bytes.len());
        self.device.seek(SeekFrom::Start(self.start + self.position))?;
        let count = self.device.write(&bytes[..length])?;
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}

/// Where `target` is in something of `length` bytes that is at `position`. A place before its start is an error.
pub fn seek_to(target: SeekFrom, position: u64, length: u64) -> io::Result<u64> {
    let place = match target {
        SeekFrom::Start(offset) => Some(offset),
        SeekFrom::End(offset) => length.checked_add_signed(offset),
        SeekFrom::Current(offset) => position.checked_add_signed(offset),
    };
    place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

impl<D> Seek for DeviceRegion<D> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.position = seek_to(target, self.position, self.length)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn volume() -> FatVolume {
        FatVolume { label: "ESP", id: 0x1234_5678, sector: 512, epoch: 1_700_000_001, kind: FatKind::Fat32 }
    }

    fn image(content: &'static [u8]) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(MINIMUM.get()).unwrap();
        let files =
            vec![FatFile::new("EFI/BOOT/BOOTX64.EFI", content), FatFile::new("grub/grub.cfg", content)];
        write_volume(&mut file, volume(), files).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_written_reads_back_and_is_fat32() {
        let bytes = image(b"loader");
        assert_eq!(&bytes[82..90], b"FAT32   ");
        let file_system = fatfs::FileSystem::new(io::Cursor::new(bytes), FsOptions::new()).unwrap();
        let mut text = String::new();
        file_system.root_dir().open_file("EFI/BOOT/BOOTX64.EFI").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "loader");
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        assert!(image(b"loader") == image(b"loader"));
    }

    #[test]
    fn a_region_does_not_write_past_its_end() {
        let mut file: File = tempfile::tempfile().unwrap();
        file.write_all(&[1; 30]).unwrap();
        let mut region = DeviceRegion::new(&mut file, 10, 10);
        assert!(region.write_all(&[2; 11]).is_err());
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[..10], [1; 10]);
        assert_eq!(bytes[20..], [1; 10]);
    }
}
