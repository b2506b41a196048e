//! Files that a user names on the command line, where `-` is standard input or standard output.
//!
//! An error says why a file cannot be read and not which one it is: callers say what it was read for, by [`told`].

use std::fs::File;
use std::io::{self, IsTerminal, Read, StdoutLock};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, bail};

use crate::failure::{Class, Failure};
use crate::standard_output;

const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Set once standard input was read to its end.
static READ: AtomicBool = AtomicBool::new(false);

/// True if `-` was given, which is standard input or standard output.
#[must_use]
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The name of an input file in messages.
#[must_use]
pub fn told(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Fails if `path` is `-`: `what` must be a file.
pub fn refuse_standard(path: &Path, what: &str, why: &str) -> Result<(), Failure> {
    if !is_standard(path) {
        return Ok(());
    }
    let failure =
        Failure::new(Class::Invalid, format!("{what} is a file, not `-`")).because(anyhow!("{why}"));
    Err(failure.hint("Name a file; a file called `-` is given as `./-`."))
}

/// Reads a whole file of at most `limit` bytes.
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>> {
    if !is_standard(path) {
        return bounded(File::open(path)?, limit);
    }
    if READ.swap(true, Ordering::Relaxed) {
        bail!(
            Failure::new(Class::Invalid, "`-` (standard input) is given twice")
                .hint("Replace one `-` by the name of a file.")
        );
    }
    bounded(io::stdin().lock(), limit)
}

/// Reads a text of at most 1 MiB.
pub fn read_text(path: &Path) -> Result<String> {
    read_text_at_most(path, MAX_TEXT_BYTES)
}

/// Reads a text of at most `limit` bytes.
pub fn read_text_at_most(path: &Path, limit: u64) -> Result<String> {
    text(read_at_most(path, limit)?)
}

fn bounded(file: impl Read, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        bail!("it is larger than {limit} bytes");
    }
    Ok(bytes)
}

/// A text may begin with a byte order mark, which YAML's readers know, or by which UTF-16 is known; other bytes are no
/// text.
fn text(bytes: Vec<u8>) -> Result<String> {
    let order: Option<fn([u8; 2]) -> u16> = match bytes.get(..2) {
        Some([0xff, 0xfe]) if bytes.get(2..4) != Some(&[0, 0]) => Some(u16::from_le_bytes),
        Some([0xfe, 0xff]) => Some(u16::from_be_bytes),
        _ => None,
    };
    if let Some(order) = order {
        let units = bytes[2..].chunks(2).map(|pair| <[u8; 2]>::try_from(pair).map(order));
        let units: Option<Vec<u16>> = units.map(Result::ok).collect();
        let decoded = units.and_then(|units| String::from_utf16(&units).ok());
        return decoded.ok_or_else(|| anyhow!("it is not a text file: it has bytes that are not UTF-8"));
    }
    if bytes.contains(&0) {
        bail!("it is not text in UTF-8: it has zero bytes, as UTF-16 and UTF-32 have; save it as UTF-8");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => bail!("it is not a text file: it has bytes that are not UTF-8"),
    }
}

/// Standard output for `what`, an image or documents with secrets. Fails if it is a terminal.
pub fn standard_output(what: &str) -> Result<StdoutLock<'static>> {
    standard_output::refuse_with_json(what)?;
    let output = io::stdout().lock();
    refuse_terminal(what, output.is_terminal())?;
    standard_output::note();
    Ok(output)
}

/// Fails if standard output is a terminal, for a document `what` that is printed.
pub fn refuse_terminal_output(what: &str) -> Result<(), Failure> {
    refuse_terminal(what, io::stdout().is_terminal())
}

fn refuse_terminal(what: &str, is_terminal: bool) -> Result<(), Failure> {
    if !is_terminal {
        return Ok(());
    }
    Err(Failure::new(Class::Invalid, format!("standard output is a terminal, which {what} is not for"))
        .hint("Send it to a file or to another program, or name a file with -o."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_why_and_leaves_the_name_to_the_caller() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        let error = |path: &Path| format!("{:#}", read_text(path).unwrap_err());
        assert_eq!(error(&path), "No such file or directory (os error 2)");
        std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
        assert_eq!(error(&path), "it is not a text file: it has bytes that are not UTF-8");
        std::fs::write(&path, "a: 1\n").unwrap();
        assert_eq!(read_text(&path).unwrap(), "a: 1\n");
        assert_eq!(format!("{:#}", read_at_most(&path, 4).unwrap_err()), "it is larger than 4 bytes");
    }

    #[test]
    fn a_dash_is_standard_input_and_a_path_to_a_file_of_that_name_is_not() {
        assert_eq!((told(Path::new("-")), told(Path::new("./-"))), ("standard input".into(), "./-".into()));
    }

    #[test]
    fn a_dash_is_refused_where_only_a_file_will_do() {
        assert!(refuse_standard(Path::new("./-"), "the disk", "").is_ok());
        let error = refuse_standard(Path::new("-"), "the disk", "it is written in no order").unwrap_err();
        assert_eq!(
            (error.class(), error.to_string().as_str()),
            (Class::Invalid, "the disk is a file, not `-`")
        );
    }

    #[test]
    fn what_is_not_for_reading_is_kept_from_terminals() {
        assert!(refuse_terminal("an ISO", false).is_ok());
        let error = refuse_terminal("an ISO", true).unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert_eq!(error.to_string(), "standard output is a terminal, which an ISO is not for");
    }

    #[test]
    fn a_text_of_utf_16_is_read_by_its_byte_order_mark_and_refused_without() {
        let encoded = |bytes: fn(u16) -> [u8; 2], mark: bool| -> Vec<u8> {
            let units = "os: {hostname: n\u{f6}rd}\n".encode_utf16();
            mark.then_some(0xfeff).into_iter().chain(units).flat_map(bytes).collect()
        };
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            assert_eq!(text(encoded(order, true)).unwrap(), "os: {hostname: n\u{f6}rd}\n");
            let told = text(encoded(order, false)).unwrap_err().to_string();
            assert!(told.contains("save it as UTF-8"), "{told}");
        }
        let mut cut = encoded(u16::to_le_bytes, true);
        cut.pop();
        assert!(text(cut).is_err());
    }
}
