//! The boot code of a disk that does not boot: in the first sector before the commit, and on data disks.

/// Boot code at the start of the first sector ends here; the disk's number and the protective partition follow (UEFI 2.10,
/// 5.2.1).
pub(crate) const CODE_END: usize = 440;
/// Boot code of a disk that is not to be started: `int 0x18`, which tells the firmware that there is nothing to boot, so that it
/// goes on with the next device (BIOS Boot Specification 1.01); if that returns, `hlt` for ever. Firmware does not look at the
/// code before it runs it, and zeros are instructions that lead nowhere: a machine with such a disk would never reach the medium
/// behind it.
pub(crate) const NEXT_DEVICE: [u8; CODE_END] = {
    let mut code = [0; CODE_END];
    let [interrupt, boot_failed, halt, jump, back] = [0xcd, 0x18, 0xf4, 0xeb, 0xfd];
    (code[0], code[1], code[2], code[3], code[4]) = (interrupt, boot_failed, halt, jump, back);
    code
};
