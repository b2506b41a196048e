//! The few calls to the kernel that need `unsafe`: argument-less ioctls of block devices and the installation
//! of signal handlers.
//!
//! Why it is sound: the ioctls take no pointer, so the kernel touches no memory of ours, and the descriptor is
//! borrowed from an open file for the length of the call. The handler does one store to an atomic, which is
//! safe at any moment.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::Result;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

mod raw {
    // linux/fs.h and linux/cdrom.h
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    nix::ioctl_none!(blkflsbuf, 0x12, 97);
    nix::ioctl_none_bad!(cdromeject, 0x5309);
}

/// Makes the kernel read the partition table of a disk again.
pub(super) fn reread_partitions(disk: &File) -> Result<()> {
    // SAFETY: see the module.
    unsafe { raw::blkrrpart(disk.as_raw_fd()) }.map(drop)
}

/// Writes and forgets what the kernel has buffered of a block device.
pub(super) fn drop_buffers(disk: &File) -> Result<()> {
    // SAFETY: see the module.
    unsafe { raw::blkflsbuf(disk.as_raw_fd()) }.map(drop)
}

/// Opens the tray of an optical drive.
pub(super) fn eject(drive: &File) -> Result<()> {
    // SAFETY: see the module.
    unsafe { raw::cdromeject(drive.as_raw_fd()) }.map(drop)
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: nix::libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM set the flag that is returned, instead of ending the process.
pub(super) fn catch_stop_signals() -> Result<&'static AtomicBool> {
    let action = SigAction::new(SigHandler::Handler(stop), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: see the module.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(&STOP)
}
