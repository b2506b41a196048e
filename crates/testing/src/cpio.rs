//! Archives of initial RAM file systems.

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
