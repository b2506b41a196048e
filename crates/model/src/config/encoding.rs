//! The content of `os.write_files`, out of its encoding.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;

use super::os::{Encoding, WriteFile};

/// The most that packed content may become.
const UNPACKED: u64 = 16 << 20;

/// The bytes of a file, or why its content is none. The content itself may be secret and is not repeated.
pub fn decode(file: &WriteFile) -> Result<Vec<u8>, &'static str> {
    if file.encoding == Encoding::Plain {
        return Ok(file.content.as_bytes().to_vec());
    }
    let packed: String = file.content.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| "the content is not base64, as `encoding` says it is")?;
    if matches!(file.encoding, Encoding::B64 | Encoding::Base64) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    match GzDecoder::new(bytes.as_slice()).take(UNPACKED + 1).read_to_end(&mut unpacked) {
        Ok(_) if unpacked.len() as u64 > UNPACKED => {
            Err("the content has more than 16 MiB once it is unpacked")
        }
        Ok(_) => Ok(unpacked),
        Err(_) => Err("the content is base64, but not of gzip, as `encoding` says it is"),
    }
}
