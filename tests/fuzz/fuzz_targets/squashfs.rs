//! The OS image that is expanded, compressed again, and the files at its blocks.
#![no_main]

use std::fs::File;
use std::io::{self, Cursor, Write};

use formats::squashfs::{Compression, Expansion};
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
        if expansion.write(1, &mut Bounded(64 << 20)).is_ok() {
            let mut compressed = Cursor::new(Vec::new());
            Compression::<File>::at_level(1).write(&expansion, 1, &mut compressed).unwrap();
            let compressed = compressed.into_inner();
            assert!(Expansion::plan(&compressed).unwrap().is_like(&expansion));
        }
        let _ = expansion.files_in(&[0..4096, 1 << 20..u64::MAX]);
    }
});
