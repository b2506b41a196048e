//! The area as bytes. All numbers are little-endian.
//!
//! | offset | length | what |
//! |---|---|---|
//! | 0 | 16 | `NQRUST-CUSTOM` and zeros |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | 0 while the area is being written, else 1 |
//! | 24 | 8 | length of the archive in bytes |
//! | 32 | 32 | SHA-256 of the archive |
//! | 64 | to [`HEADER`] | zeros |
//! | [`HEADER`] | as said | the archive ([`super::content`]) |
//! | behind it | to [`LENGTH`] | zeros |
//!
//! A header of zeros says that the medium is as it was built. Whoever changes the area writes [`UNFINISHED`] first and
//! the true header last, so that a change which was cut short is never taken for a configuration.

use std::io::{self, Read};

use super::content::Content;
pub use super::damage::{AreaDamage, CAPACITY, HEADER, LENGTH};
use base::digest::Digest;

const MAGIC: [u8; 16] = *b"NQRUST-CUSTOM\0\0\0";
const VERSION: u32 = 1;
const FINISHED: u32 = 1;
/// The used bytes of the header; the others are zero.
const USED: usize = 64;

/// Why content does not fit an area, a clause.
#[derive(Debug, thiserror::Error)]
pub enum AreaContentError {
    /// There is no room for so many bytes.
    #[error("it has {0} bytes, and there is room for {CAPACITY}")]
    TooLarge(usize),
    /// A path that cannot be in an archive.
    #[error("a file cannot be packed")]
    Path(#[source] io::Error),
}

/// The header of an area that is being written.
#[must_use]
pub fn unfinished() -> [u8; HEADER] {
    header(0, 0, &[0; 32])
}

/// The area that holds `content`, up to the last byte that is not zero for sure; empty for no content, which is how
/// media are built.
pub fn bytes(content: &Content) -> Result<Vec<u8>, AreaContentError> {
    if content.is_empty() {
        return Ok(Vec::new());
    }
    let archive = content.pack().map_err(AreaContentError::Path)?;
    if archive.len() > CAPACITY {
        return Err(AreaContentError::TooLarge(archive.len()));
    }
    let mut area = header(FINISHED, archive.len() as u64, Digest::of(&archive).as_bytes()).to_vec();
    area.extend(archive);
    Ok(area)
}

/// The content of the area; none if the medium is not customized.
pub fn read(mut area: impl Read) -> Result<Option<Content>, AreaDamage> {
    let mut header = [0; HEADER];
    area.read_exact(&mut header).map_err(AreaDamage::Read)?;
    let Some((length, expected)) = parse(&header)? else { return Ok(None) };
    let mut archive = vec![0; length];
    area.read_exact(&mut archive).map_err(AreaDamage::Read)?;
    let found = Digest::of(&archive);
    if found != expected {
        return Err(AreaDamage::Digest { found, expected });
    }
    Content::unpack(&archive).map(Some)
}

/// True if an area was changed since the medium was built, by its header alone.
pub fn is_used(area: impl Read) -> io::Result<bool> {
    let mut header = Vec::with_capacity(HEADER);
    area.take(HEADER as u64).read_to_end(&mut header)?;
    Ok(header.iter().any(|byte| *byte != 0))
}

fn header(state: u32, length: u64, sha256: &[u8; 32]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..16].copy_from_slice(&MAGIC);
    header[16..20].copy_from_slice(&VERSION.to_le_bytes());
    header[20..24].copy_from_slice(&state.to_le_bytes());
    header[24..32].copy_from_slice(&length.to_le_bytes());
    header[32..USED].copy_from_slice(sha256);
    header
}

/// Length and SHA-256 of the archive; none where there is none.
fn parse(header: &[u8; HEADER]) -> Result<Option<(usize, Digest)>, AreaDamage> {
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if header[..16] != MAGIC {
        return Err(AreaDamage::NoHeader);
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if word(16) != VERSION {
        return Err(AreaDamage::Version(word(16)));
    }
    let state = word(20);
    if state > FINISHED || header[USED..].iter().any(|byte| *byte != 0) {
        return Err(AreaDamage::Header);
    }
    if state != FINISHED {
        return Err(AreaDamage::Unfinished);
    }
    let length = u64::from(word(24)) | u64::from(word(28)) << 32;
    let fits = usize::try_from(length).ok().filter(|length| *length <= CAPACITY);
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(&header[32..USED]);
    Ok(Some((fits.ok_or(AreaDamage::Length(length))?, Digest::from_bytes(sha256))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::customization::content::File;
    use model::config::Secret;
    use proptest::prelude::*;

    fn content() -> Content {
        let nodes = [("default.yaml".to_owned(), Secret::new("install: {automatic: true}\n"))];
        Content { nodes: nodes.into(), ..Content::default() }
    }

    fn area() -> Vec<u8> {
        bytes(&content()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_zeros_are_no_content() {
        assert_eq!(read(&*area()).unwrap(), Some(content()));
        assert_eq!(read(io::repeat(0)).unwrap(), None);
        assert!(bytes(&Content::default()).unwrap().is_empty());
        assert!(is_used(&*area()).unwrap() && is_used(&unfinished()[..]).unwrap());
        assert!(!is_used(io::repeat(0)).unwrap());
    }

    #[test]
    fn the_same_content_makes_the_same_bytes() {
        assert_eq!(area(), area());
    }

    #[test]
    fn every_kind_of_damage_is_told() {
        let changed = |at: usize, byte: u8| {
            let mut area = area();
            area[at] = byte;
            read(&*area).unwrap_err().to_string()
        };
        assert_eq!(changed(0, b'n'), "it begins with neither a header nor zeros");
        assert_eq!(changed(16, 9), "its version is 9, which this program does not support");
        assert_eq!(changed(20, 0), "it was not written to its end");
        assert_eq!(changed(20, 7), "its header is damaged");
        assert_eq!(changed(100, 7), "its header is damaged");
        let archive = Digest::of(&area()[HEADER..]);
        let said = changed(HEADER + 600, b'?');
        assert!(said.starts_with("its archive, from byte 4096 on, has the SHA-256 "), "{said}");
        assert!(said.ends_with(&format!(" instead of {archive}")), "{said}");
        let said = changed(40, 7);
        assert!(said.contains(&format!("has the SHA-256 {archive} instead of ")), "{said}");
        assert!(changed(31, 0x80).ends_with("bytes, and there is room for 16777216"));
        assert_eq!(read(&unfinished()[..]).unwrap_err().to_string(), "it was not written to its end");
        for cut in [0, 10, HEADER, area().len() - 1] {
            assert!(matches!(read(&area()[..cut]), Err(AreaDamage::Read(_))), "{cut}");
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_refused() {
        let mut large = content();
        let blob = |length| File { mode: 0o600, bytes: vec![7; length] };
        large.files.insert("blob".into(), blob(CAPACITY));
        assert!(matches!(bytes(&large), Err(AreaContentError::TooLarge(size)) if size > CAPACITY));
        large.files.insert("blob".into(), blob(CAPACITY - 8192));
        assert_eq!(read(&*bytes(&large).unwrap()).unwrap(), Some(large));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reading_panic(noise: Vec<u8>, at in 0_usize..200) {
            let mut bytes = area();
            for (place, byte) in bytes[at..].iter_mut().zip(&noise) {
                *place = *byte;
            }
            let _ = read(&*bytes);
            let _ = read(&*noise);
        }
    }
}
