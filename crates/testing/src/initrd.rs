//! Small initial RAM file systems.

use std::io::Cursor;

use formats::initrd::{ArchivedFile, archive, pack};

/// An initrd in which one small file is `text`, unpacked, and packed as a medium has it.
#[must_use]
pub fn saying(text: &str) -> (Vec<u8>, Vec<u8>) {
    let noise: Vec<u8> =
        (0..90_000_u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as u8).collect();
    let file = |path, content| ArchivedFile { path, content, executable: false };
    let archives = archive(&[file("init", &noise), file("release", text.as_bytes())]);
    let mut packed = Vec::new();
    pack(&mut Cursor::new(&archives), &mut packed).unwrap();
    (archives, packed)
}
