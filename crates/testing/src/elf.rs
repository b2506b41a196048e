//! ELF programs that do nothing, for tests of the check of the installer in a build.

/// A program header that makes a program a dynamic one: type, offset and length.
pub const INTERPRETED: (u32, u64, u64) = (3, 0, 4);

/// A static program for the processor `machine` (62 is x86-64), whose note names a package; `further` program headers.
pub fn made(machine: u16, name: &str, version: &str, further: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut text = format!(r#"{{"type":"cargo","name":"{name}","version":"{version}"}}"#).into_bytes();
    text.push(0);
    let mut note = Vec::new();
    // A note of somebody else before it, whose lengths are no multiples of four.
    for (owner, kind, content) in
        [(&b"GNU\0"[..], 3_u32, &b"12345"[..]), (&b"FDO\0"[..], 0xcafe_1a7e, &text[..])]
    {
        for number in [owner.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_le_bytes());
        }
        for piece in [owner, content] {
            note.extend(piece);
            note.resize(note.len().next_multiple_of(4), 0);
        }
    }
    let count = 1 + further.len();
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [2_u16, machine] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0x40_0000_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, count as u16, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let at = (64 + 56 * count) as u64;
    for (kind, offset, size) in [(4, at, note.len() as u64)].iter().chain(further) {
        file.extend(kind.to_le_bytes());
        file.extend(4_u32.to_le_bytes());
        for word in [*offset, 0, 0, *size, *size, 4] {
            file.extend(word.to_le_bytes());
        }
    }
    file.extend(note);
    file
}

/// A program in `directory` that a build of this version accepts as its installer.
pub fn installer(directory: &std::path::Path) -> std::path::PathBuf {
    let path = directory.join("installer-program");
    std::fs::write(&path, made(62, "installer", env!("CARGO_PKG_VERSION"), &[])).unwrap();
    path
}
