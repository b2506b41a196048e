//! Damage that a disk does to a node which runs: bytes that nobody has written.

use anyhow::{Context, Result};

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
