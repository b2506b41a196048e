//! Small initial RAM file systems.

use std::io::Cursor;

use formats::initrd::pack;

/// An archive in the portable format (cpio(5), `newc`) with these files, which have no rights and no owner.
#[must_use]
pub fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in files.iter().chain([&("TRAILER!!!", &b""[..])]) {
        let mut fields = [0; 13];
        (fields[6], fields[11]) = (content.len(), name.len() + 1);
        out.extend_from_slice(b"070701");
        for field in fields {
            out.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

/// An initrd in which one small file is `text`, unpacked, and packed as a medium has it.
#[must_use]
pub fn saying(text: &str) -> (Vec<u8>, Vec<u8>) {
    let noise: Vec<u8> =
        (0..90_000_u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as u8).collect();
    let archives = archive(&[("init", &noise), ("release", text.as_bytes())]);
    let mut packed = Vec::new();
    pack(&mut Cursor::new(&archives), &mut packed).unwrap();
    (archives, packed)
}
