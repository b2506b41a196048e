//! The OS image that is expanded, and the files at its blocks.
#![no_main]

use std::io::{self, Write};

use formats::squashfs::Expansion;
use libfuzzer_sys::fuzz_target;

/// Takes no more than a small image expands to: holes make any length.
struct Bounded(usize);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let image = bytes.to_vec();
    if let Ok(expansion) = Expansion::plan(&image) {
        let _ = expansion.write(1, &mut Bounded(64 << 20));
        let _ = expansion.files_in(&[0..4096, 1 << 20..u64::MAX]);
    }
});
