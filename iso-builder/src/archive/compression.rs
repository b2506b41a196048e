//! How a stream is compressed, recognised by its first bytes; file names are not trusted.

use std::io::{self, BufRead, Read};

/// The largest window that is decompressed, as a power of two: what zstd itself allows by default. A reader needs that
/// much memory.
const MAX_WINDOW_LOG: u32 = 27;

/// The first bytes of the formats.
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Compressions that neither image archives nor layers use.
const UNSUPPORTED: [(&[u8], &str); 4] =
    [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"LZIP", "lzip"), (b"\x04\x22\x4d\x18", "lz4")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed, or in a way that is not recognised.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "nothing",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

impl Compression {
    /// The compression of a stream that begins with `head`; six bytes suffice.
    pub fn of(head: &[u8]) -> io::Result<Self> {
        if let Some((_, name)) = UNSUPPORTED.iter().find(|(magic, _)| head.starts_with(magic)) {
            let why = format!("it is compressed with {name}; plain, gzip and zstd can be read");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(match head {
            _ if head.starts_with(GZIP) => Self::Gzip,
            _ if head.starts_with(ZSTD) => Self::Zstd,
            _ => Self::None,
        })
    }

    /// The decompressed content of `reader`. Frames that follow one another are one stream.
    pub fn undo<'a>(self, reader: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::None => Box::new(reader),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(reader)?;
                decoder.window_log_max(MAX_WINDOW_LOG)?;
                Box::new(decoder)
            }
        })
    }
}

/// The decompressed content of a stream, compressed or not.
pub fn plain<'a>(mut reader: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    Compression::of(reader.fill_buf()?)?.undo(reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn every_compression_is_undone_frame_by_frame() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"content").unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = zstd::encode_all(&b"content"[..], 3).unwrap();
        for (name, stream) in [("plain", b"content".to_vec()), ("gzip", gzip), ("zstd", zstd)] {
            let mut read = String::new();
            plain([&stream[..], &stream].concat().as_slice()).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, "contentcontent", "{name}");
            assert!(
                name == "plain"
                    || plain(&stream[..stream.len() - 1]).unwrap().read_to_end(&mut vec![]).is_err()
            );
        }
    }

    #[test]
    fn what_cannot_be_undone_is_named() {
        let error = plain(&b"\xfd7zXZ\0rest"[..]).err().unwrap();
        assert!(error.to_string().contains("xz"), "{error}");
    }
}
