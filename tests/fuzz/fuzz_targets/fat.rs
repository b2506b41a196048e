//! The EFI system partition of a disk that was found: garbage, and a right volume with bytes changed.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The reader is of the installer's executor, which alone may use it. Paths are relative to this directory.
#[path = "."]
mod execute {
    #[allow(dead_code, reason = "the installer uses all of it")]
    #[path = "../../../crates/install/src/execute/boot/read_volume.rs"]
    mod read_volume;

    use std::cell::RefCell;
    use std::fs::File;
    use std::io::Cursor;
    use std::os::unix::fs::FileExt;
    use std::sync::LazyLock;

    use formats::fat::{FatFile, FatKind, FatVolume, write_volume};
    use read_volume::FatReader;

    const FILES: [&str; 2] = ["EFI/BOOT/BOOTX64.EFI", "nqrust/boot.cfg"];

    static VOLUME: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut volume = Cursor::new(vec![0; 1 << 20]);
        let kind = FatVolume { label: "FUZZ", id: 1, sector: 512, epoch: 0, kind: FatKind::BySize };
        let files = FILES.map(|path| FatFile::new(path, &[7; 9000][..]));
        write_volume(&mut volume, kind, files.into()).expect("a volume in memory");
        volume.into_inner()
    });

    thread_local! {
        static DISK: RefCell<File> = RefCell::new(tempfile::tempfile_in("/dev/shm").expect("a file in memory"));
    }

    fn look(bytes: &[u8]) {
        DISK.with_borrow(|disk| {
            disk.set_len(bytes.len() as u64).expect("room");
            disk.write_all_at(bytes, 0).expect("room");
            let volume = FatReader::new(disk, 0, bytes.len() as u64);
            for path in FILES {
                let _ = volume.file(path);
                let _ = volume.placed(path);
            }
        });
    }

    pub(super) fn read(bytes: &[u8]) {
        look(bytes);
        let mut volume = VOLUME.clone();
        for change in bytes.chunks_exact(4) {
            let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % volume.len();
            volume[at] ^= change[3];
        }
        look(&volume);
    }
}

fuzz_target!(|bytes: &[u8]| execute::read(bytes));
