//! ISO 9660 images that boot on BIOS and on UEFI, from optical drives and from USB sticks. Assembled by `xorriso`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use installer::command::{Invocation, Runner, SystemRunner};
use installer::failure::{Class, Failure};
use installer::progress::Progress;
use installer::size::ByteSize;

/// What an ISO is made of.
#[derive(Clone, Debug)]
pub struct Iso {
    /// Volume id: up to 32 of A-Z, 0-9 and `_`.
    pub volume: String,
    /// The time of the volume and of every file, in seconds since 1970.
    pub epoch: u64,
    /// The files: path on the ISO, and where the content is.
    pub files: Vec<(String, PathBuf)>,
    /// GRUB's El Torito image; its path on the ISO is [`ELTORITO`].
    pub eltorito: PathBuf,
    /// The boot sector for USB sticks.
    pub hybrid: PathBuf,
    /// The EFI system partition's image.
    pub esp: PathBuf,
}

/// Where the El Torito image is on the ISO.
const ELTORITO: &str = "boot/grub/eltorito.img";

/// Volume descriptors, path tables, directories and padding of any ISO of ours take less.
const OVERHEAD: ByteSize = ByteSize::mib(8);

/// A volume id from free text.
#[must_use]
pub fn volume_id(text: &str) -> String {
    let upper = text.to_ascii_uppercase();
    let plain = upper.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    plain.take(32).collect()
}

impl Iso {
    /// Writes the ISO to `output` by way of a temporary name beside it; shows progress as the step `step`.
    pub fn write(&self, output: &Path, step: &str, progress: &Progress) -> Result<()> {
        let size = self.content_size()?;
        check_space(output, size + OVERHEAD)?;
        let unfinished = output.with_extension("iso.new");
        let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut step = progress.step(step, format!("Writing {name}"), Some(size.get()));
        let done = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| follow(&unfinished, &done, |bytes| step.advance(bytes)));
            let result = SystemRunner.run(&self.command(&unfinished));
            done.store(true, Ordering::Relaxed);
            result
        });
        if let Err(error) = result {
            let _ = fs::remove_file(&unfinished);
            return Err(error.context(format!("writing {}", output.display())));
        }
        fs::rename(&unfinished, output).with_context(|| format!("naming {}", output.display()))?;
        step.done();
        Ok(())
    }

    fn content_size(&self) -> Result<ByteSize> {
        let mut total = 0;
        for path in self.files.iter().map(|(_, path)| path).chain([&self.eltorito, &self.esp]) {
            total += fs::metadata(path).with_context(|| format!("reading {}", path.display()))?.len();
        }
        Ok(ByteSize::bytes(total))
    }

    /// The four boot paths: El Torito for BIOS, a boot sector for BIOS from USB, and one FAT image that is El
    /// Torito's EFI entry and, as an appended partition, what UEFI finds on a USB stick.
    /// `-r` gives every file root as owner and plain modes; `all_file_dates` and `SOURCE_DATE_EPOCH` leave no
    /// trace of the moment.
    fn command(&self, output: &Path) -> Invocation {
        let joined = |head: &str, path: &Path| {
            let mut word = OsString::from(head);
            word.push(path);
            word
        };
        let mut command = Invocation::new("xorriso")
            .env("SOURCE_DATE_EPOCH", self.epoch.to_string())
            .env("TZ", "UTC")
            .limit(Duration::from_secs(4 * 3600))
            .args(["-no_rc", "-abort_on", "FAILURE", "-as", "mkisofs", "-quiet"])
            .args(["-volid", &self.volume, "-r", "-J", "-joliet-long", "-iso-level", "3"])
            .arg("--set_all_file_dates")
            .arg(format!("={}", self.epoch))
            .args(["--grub2-mbr".into(), self.hybrid.clone().into_os_string()])
            .args(["-partition_offset", "16", "--mbr-force-bootable"])
            .args(["-append_partition".into(), "2".into(), "0xef".into(), self.esp.clone().into_os_string()])
            .args(["-appended_part_as_gpt", "-c", "boot/grub/boot.cat", "-b", ELTORITO])
            .args(["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "--grub2-boot-info"])
            .args(["-eltorito-alt-boot", "-e", "--interval:appended_partition_2:all::", "-no-emul-boot"])
            .arg("-o")
            .arg(output)
            .arg("-graft-points")
            .arg(joined(&format!("{ELTORITO}="), &self.eltorito));
        for (path, source) in &self.files {
            command = command.arg(joined(&format!("{path}="), source));
        }
        command
    }
}

/// Fails before anything is written when the disk cannot hold the result.
fn check_space(output: &Path, needed: ByteSize) -> Result<()> {
    let directory = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stat = nix::sys::statvfs::statvfs(directory)
        .with_context(|| format!("asking for the free space of {}", directory.display()))?;
    let free = ByteSize::bytes(stat.blocks_available() * stat.fragment_size());
    if free >= needed {
        return Ok(());
    }
    let what = format!("{} has no room for {}", directory.display(), output.display());
    let why = anyhow::anyhow!("it needs {needed}, and {free} are free");
    let hint = "Free space there, or write to another disk with -o.";
    Err(Failure::new(Class::DiskIo, what).because(why).hint(hint).into())
}

/// Reports how `path` grows until `done`.
fn follow(path: &Path, done: &AtomicBool, mut grown: impl FnMut(u64)) {
    let mut seen = 0;
    while !done.load(Ordering::Relaxed) {
        let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
        grown(length.saturating_sub(seen));
        seen = seen.max(length);
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_id_has_only_what_iso_9660_allows() {
        assert_eq!(volume_id("nqrust-hypervisor-0.1.0~rc1"), "NQRUST_HYPERVISOR_0_1_0_RC1");
        assert_eq!(volume_id(&"x".repeat(40)).len(), 32);
    }

    #[test]
    fn a_disk_that_is_too_small_is_told_before_anything_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let error = check_space(&directory.path().join("x.iso"), ByteSize::gib(1 << 30)).unwrap_err();
        assert_eq!(installer::failure::class_of(&error), Class::DiskIo);
    }
}
