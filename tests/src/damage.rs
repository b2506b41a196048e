//! Bytes that nobody has written: damage that a disk does to a node which runs, and damage of a medium.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use model::release::Payload;

use crate::programs;
use crate::ssh::Ssh;
use crate::updates::UPDATE_LIMIT;

/// Where a device of the node has this text, in bytes.
pub fn place_of(ssh: &Ssh, device: &str, text: &str) -> Result<u64> {
    let find = format!("sudo -n env LC_ALL=C grep -aboFm1 '{text}' {device}");
    let found = ssh.attempt(&find, UPDATE_LIMIT)?.success(&find)?;
    let place = found.split(':').next().and_then(|place| place.parse().ok());
    place.with_context(|| format!("{text:?} was found at {found:?}"))
}

/// Changes a byte of a device behind the back of the file system, and lets the kernel forget what it has read.
pub fn flip(ssh: &Ssh, device: &str, at: u64) -> Result<()> {
    ssh.run(&format!(
        "sudo -n sh -euc 'byte=$(dd if={device} bs=1 skip={at} count=1 status=none | od -An -tu1); \
         printf \"\\\\$(printf %o $((byte ^ 4)))\" | dd of={device} bs=1 seek={at} conv=notrunc,fsync status=none; \
         echo 3 >/proc/sys/vm/drop_caches'"
    ))
    .map(drop)
}

/// Where a payload begins on an ISO, in bytes.
pub fn place_on(iso: &Path, payload: &Payload) -> Result<u64> {
    let path = format!("/{}", payload.path);
    let report = programs::xorriso(iso, &["-find", &path, "-exec", "report_lba"])?;
    // `File data lba:  extent , start , blocks , bytes , 'path'`, in blocks of 2 KiB.
    let start: u64 = report
        .lines()
        .find(|line| line.starts_with("File data lba:"))
        .and_then(|line| line.split(',').nth(1)?.trim().parse().ok())
        .with_context(|| format!("no place of {path} in: {report}"))?;
    Ok(start * 2048)
}

/// Inverts the bits of a byte of a file.
pub fn invert(file: &Path, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(file)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[!byte[0]], at)?;
    Ok(())
}
