//! The initrd with what it needs of us beside dracut's files: the installer, which finds the OS image and opens it by the hashes of the
//! release, and the keys that the release has to be signed with.

use std::fs::{self, File};
use std::io::Seek;
use std::path::Path;

use anyhow::{Context, Result};
use base::files;
use formats::initrd::{self, ArchivedFile};
use trust::store::TRUST_STORE;

/// Where the initrd has the installer: where `nqrust-root.service` starts it.
const INSTALLER: &str = "usr/bin/installer";

/// Makes `initrd` in `out` from that of dracut.
pub(super) fn complete(dracut: &Path, installer: &Path, trust: &[u8], out: &Path) -> Result<()> {
    let what = || format!("adding {} to {}", installer.display(), dracut.display());
    let program = fs::read(installer).with_context(what)?;
    let files = [
        ArchivedFile { path: INSTALLER, content: &program, executable: true },
        ArchivedFile { path: TRUST_STORE.trim_start_matches('/'), content: trust, executable: false },
    ];
    let mut archives = tempfile::tempfile_in(out).with_context(what)?;
    initrd::unpack(&mut File::open(dracut).with_context(what)?, &mut archives).with_context(what)?;
    initrd::add(&mut archives, &files).with_context(what)?;
    archives.rewind().with_context(what)?;
    files::fill_unsynced(&out.join("initrd"), 0o644, |file| initrd::pack(&mut archives, file))
        .with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::initrd::saying;

    #[test]
    fn the_installer_and_the_trust_store_follow_the_files_of_dracut() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (archives, packed) = saying("of dracut");
        fs::write(at("dracut"), packed).unwrap();
        fs::write(at("installer"), b"the program").unwrap();
        let made = || {
            let out = tempfile::tempdir().unwrap();
            complete(&at("dracut"), &at("installer"), b"the store", out.path()).unwrap();
            fs::read(out.path().join("initrd")).unwrap()
        };
        let initrd = made();
        assert_eq!(initrd, made());
        let mut plain = Vec::new();
        initrd::unpack(&mut std::io::Cursor::new(initrd), &mut plain).unwrap();
        let kept = archives.windows(10).position(|bytes| bytes == b"TRAILER!!!").unwrap() - 110;
        assert!(plain.starts_with(&archives[..kept]));
        let added = &plain[kept..];
        for text in ["usr/bin/installer", "the program", "usr/share/nqrust/trust.json", "the store"] {
            assert!(added.windows(text.len()).any(|bytes| bytes == text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn microcode_stays_plain_in_front_of_the_installer() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let microcode = [7; 999];
        let path = "kernel/x86/microcode/GenuineIntel.bin";
        let early = initrd::archive(&[ArchivedFile { path, content: &microcode, executable: false }]);
        fs::write(at("dracut"), [&early[..], &saying("of dracut").1].concat()).unwrap();
        fs::write(at("installer"), b"the program").unwrap();
        complete(&at("dracut"), &at("installer"), b"the store", directory.path()).unwrap();
        let made = fs::read(at("initrd")).unwrap();
        assert!(made.starts_with(&early));
        // What follows is one frame of zstd.
        assert_eq!(made[early.len()..][..4], [0x28, 0xb5, 0x2f, 0xfd]);
        let mut plain = Vec::new();
        initrd::unpack(&mut std::io::Cursor::new(made), &mut plain).unwrap();
        let entries = initrd::entries(&mut std::io::Cursor::new(plain)).unwrap();
        assert!(entries.contains_key(path) && entries.contains_key("usr/bin/installer"));
    }
}
