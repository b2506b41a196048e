//! The few calls to the kernel that need `unsafe`: ioctls of block devices without argument, and loading a kernel.
//!
//! Why it is sound: the ioctls take no pointer, so the kernel touches no memory of ours, and the descriptor is borrowed from an
//! open file for the length of the call. `kexec_file_load` reads the command line, whose length is passed with it, and two
//! borrowed descriptors, and writes no memory of ours.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;

use nix::Result;
use nix::errno::Errno;
use nix::libc;

mod raw {
    // linux/fs.h and linux/cdrom.h
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    nix::ioctl_none!(blkflsbuf, 0x12, 97);
    nix::ioctl_none_bad!(cdromeject, 0x5309);
}

pub(crate) fn reread_partitions(disk: &File) -> Result<()> {
    // SAFETY: see the module.
    unsafe { raw::blkrrpart(disk.as_raw_fd()) }.map(drop)
}

/// Writes back and drops what the kernel has cached of a block device.
pub(crate) fn drop_buffers(disk: &File) -> Result<()> {
    // SAFETY: see the module.
    unsafe { raw::blkflsbuf(disk.as_raw_fd()) }.map(drop)
}

pub(crate) fn eject(drive: &File) -> Result<()> {
    // SAFETY: see the module.
    unsafe { raw::cdromeject(drive.as_raw_fd()) }.map(drop)
}

/// When a loaded kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadedFor {
    /// In place of this one, when the system is asked for it.
    Restart,
    /// Where this one crashes, in the memory that is reserved for it.
    Crash,
}

/// Loads a kernel (kexec_file_load(2)), which has to be signed where Secure Boot is on. The files must not be open for writing.
pub(crate) fn load_kernel(kernel: &File, initrd: &File, line: &CStr, reason: LoadedFor) -> Result<()> {
    // linux/kexec.h
    const KEXEC_FILE_ON_CRASH: u64 = 2;
    let flags = match reason {
        LoadedFor::Restart => 0,
        LoadedFor::Crash => KEXEC_FILE_ON_CRASH,
    };
    let line = line.to_bytes_with_nul();
    let (kernel, initrd) = (kernel.as_raw_fd(), initrd.as_raw_fd());
    // SAFETY: see the module.
    let done =
        unsafe { libc::syscall(libc::SYS_kexec_file_load, kernel, initrd, line.len(), line.as_ptr(), flags) };
    Errno::result(done).map(drop)
}
