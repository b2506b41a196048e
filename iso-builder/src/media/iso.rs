//! ISO 9660 images that boot on BIOS and on UEFI, from optical drives and from USB sticks. Assembled by `xorriso`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use installer::command::{Invocation, Runner, SystemRunner};
use installer::failure::{Class, Failure};
use installer::progress::Progress;
use installer::size::ByteSize;
use tempfile::NamedTempFile;

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
        let boot = (ELTORITO.to_owned(), self.eltorito.clone());
        let files: Vec<_> = std::iter::once(boot).chain(self.files.iter().cloned()).collect();
        let lists = Lists::write(&files)?;
        let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut step = progress.step(step, format!("Writing {name}"), Some(size.get()));
        let done = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| follow(&unfinished, &done, |bytes| step.advance(bytes)));
            let result = SystemRunner.run(&self.command(&unfinished, &lists));
            done.store(true, Ordering::Relaxed);
            result
        });
        if let Err(error) = result {
            let written = fs::metadata(&unfinished).map_or(0, |metadata| metadata.len());
            let _ = fs::remove_file(&unfinished);
            // Somebody else may have filled the disk meanwhile.
            check_space(output, size + OVERHEAD)?;
            return Err(error.context(format!("writing {} (at byte {written})", output.display())));
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
    ///
    /// Owners, modes and times are given, so that those of the sources leave no trace; `SOURCE_DATE_EPOCH` gives
    /// the identifiers of disk and partitions. There is no Joliet tree, which would cut the volume's name short.
    fn command(&self, output: &Path, lists: &Lists) -> Invocation {
        Invocation::new("xorriso")
            .env("SOURCE_DATE_EPOCH", self.epoch.to_string())
            .env("TZ", "UTC")
            .limit(Duration::from_secs(4 * 3600))
            .args(["-no_rc", "-abort_on", "FAILURE", "-as", "mkisofs", "-quiet"])
            .args(["-volid", &self.volume, "-R", "-iso-level", "3"])
            .args(["-uid", "0", "-gid", "0", "-dir-mode", "0555", "-file-mode", "0444"])
            .arg("--set_all_file_dates")
            .arg(format!("={}", self.epoch))
            .arg("--grub2-mbr")
            .arg(&self.hybrid)
            .args(["-partition_offset", "16", "--mbr-force-bootable", "-append_partition", "2", "0xef"])
            .arg(&self.esp)
            .args(["-appended_part_as_gpt", "-c", "boot/grub/boot.cat", "-b", ELTORITO])
            .args(["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "--grub2-boot-info"])
            .args(["-eltorito-alt-boot", "-e", "--interval:appended_partition_2:all::", "-no-emul-boot"])
            .arg("-o")
            .arg(output)
            .arg("--sort-weight-list")
            .arg(lists.weights.path())
            .args(["-graft-points", "-path-list"])
            .arg(lists.paths.path())
    }
}

/// The files that tell `xorriso` what goes where, and in which order: without weights the order of the extents
/// would be that of the sources' inodes.
struct Lists {
    paths: NamedTempFile,
    weights: NamedTempFile,
}

impl Lists {
    fn write(files: &[(String, PathBuf)]) -> Result<Self> {
        let mut paths = Vec::new();
        let mut weights = String::new();
        for (number, (path, source)) in files.iter().enumerate() {
            ensure!(!path.contains(['\n', '=', '\\']), "{path:?} cannot be the name of a file on an ISO");
            // A heavier file lies nearer to the beginning; libisofs takes 31 bits.
            let weight = (1_usize << 30).saturating_sub(number);
            writeln!(weights, "{weight} /{path}")?;
            paths.extend_from_slice(format!("/{path}=").as_bytes());
            for byte in source.as_os_str().as_encoded_bytes() {
                // In a graft point `=` and `\` have a meaning.
                if matches!(byte, b'=' | b'\\') {
                    paths.push(b'\\');
                }
                paths.push(*byte);
            }
            paths.push(b'\n');
        }
        let write = |bytes: &[u8]| -> Result<NamedTempFile> {
            let file = NamedTempFile::new().context("making a temporary file")?;
            fs::write(file.path(), bytes).with_context(|| format!("writing {}", file.path().display()))?;
            Ok(file)
        };
        Ok(Self { paths: write(&paths)?, weights: write(weights.as_bytes())? })
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
