//! A copy of etcd's data in a file, by etcd's HTTP gateway (etcd, "gRPC gateway"; `Maintenance.Snapshot`): what `etcdctl snapshot save`
//! writes, and `etcdutl snapshot restore` reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use crate::api::etcd;
use base::digest::Hasher;
use base::failure::{Class, Failure};
use base::files::UnfinishedFile;

/// In bytes. etcd sends pieces of 32 KiB (etcd `snapshotSendBufferSize`), a third more in base64.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// etcd's file has pages of this many bytes at least (bbolt), and its digest behind them.
const PAGE_BYTES: usize = 512;
const DIGEST_BYTES: usize = 32;

#[derive(Deserialize)]
struct Piece {
    result: Option<PieceContent>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct PieceContent {
    #[serde(default)]
    blob: String,
}

/// Saves the data of the etcd on this node to `path`, for root alone: it has the secrets of the cluster. The file appears when it is
/// whole, by etcd's own digest, and on the disk.
///
/// # Errors
/// [`Class::Join`] if etcd does not answer, [`Class::Verification`] if what came is not whole, [`Class::DiskIo`] if it cannot be
/// written.
pub fn save(root: &Path, path: &Path) -> Result<()> {
    write(etcd::snapshot(root)?, path)
}

/// Writes what the gateway answers: a line of JSON for each piece.
fn write(answer: impl Read, path: &Path) -> Result<()> {
    let on_disk = |error: std::io::Error| {
        Failure::new(Class::DiskIo, format!("writing {}", path.display()))
            .because(error)
            .hint("Free space on /var.")
    };
    let mut unfinished = UnfinishedFile::begin(path).map_err(on_disk)?;
    let mut pieces = BufReader::new(answer);
    // The last bytes that came are the digest of those before them, which are known only at the end.
    let mut held: Vec<u8> = Vec::new();
    let mut length = 0;
    let mut hasher = Hasher::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = pieces.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if count.context("reading the data of etcd")? == 0 {
            break;
        }
        let piece: Piece =
            serde_json::from_slice(&line).context("etcd sent something other than a snapshot")?;
        if let Some(error) = piece.error {
            let failure = Failure::new(Class::Join, "etcd on this node ended its snapshot early");
            return Err(failure.because(error.to_string()).into());
        }
        let blob = piece.result.map(|content| content.blob).unwrap_or_default();
        held.extend(BASE64_STANDARD.decode(blob).context("etcd sent a piece that is not base64")?);
        let known = held.len().saturating_sub(DIGEST_BYTES);
        hasher.update(&held[..known]);
        unfinished.file_mut().write_all(&held[..known]).map_err(on_disk)?;
        length += known;
        held.drain(..known);
    }
    let whole = length > 0 && length % PAGE_BYTES == 0 && held == hasher.finish().as_bytes();
    if !whole {
        let what = "the snapshot from etcd on this node is incomplete";
        return Err(Failure::new(Class::Verification, what).hint("Run it again.").into());
    }
    unfinished.file_mut().write_all(&held).map_err(on_disk)?;
    Ok(unfinished.place(0o600).map_err(on_disk)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;
    use base::failure::class_of;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// What etcd's gateway answers for `data`, in pieces of this length.
    fn answer(data: &[u8], length: usize) -> String {
        let digest = Digest::of(data);
        let whole = [data, digest.as_bytes()].concat();
        let piece = |blob: &[u8]| {
            format!(
                "{{\"result\":{{\"remaining_bytes\":\"1\",\"blob\":\"{}\"}}}}\n",
                BASE64_STANDARD.encode(blob)
            )
        };
        whole.chunks(length).map(piece).collect()
    }

    #[test]
    fn a_snapshot_is_etcds_file_with_its_digest_and_only_roots() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let data: Vec<u8> = (0..PAGE_BYTES * 5).map(|place| (place * 7) as u8).collect();
        for length in [7, 33, 512, 100_000] {
            write(answer(&data, length).as_bytes(), &path).unwrap();
            let written = fs::read(&path).unwrap();
            assert_eq!(written, [&data, Digest::of(&data).as_bytes().as_slice()].concat(), "{length}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_not_whole_gets_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let data = vec![3; PAGE_BYTES * 2];
        let whole = answer(&data, 64);
        let lines: Vec<_> = whole.lines().collect();
        let cut = lines[..lines.len() - 1].join("\n");
        let odd = answer(&data[..700], 64);
        let broken = format!("{}\n{}\n", lines[0], r#"{"error":{"code":14,"message":"gone"}}"#);
        for (text, class) in [
            (cut, Class::Verification),
            (String::new(), Class::Verification),
            (odd, Class::Verification),
            (broken, Class::Join),
        ] {
            let error = write(text.as_bytes(), &path).unwrap_err();
            assert_eq!(class_of(&error), class, "{error:#}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        // Pieces that are all the same say nothing of their order; these are not.
        let data: Vec<u8> = (0..PAGE_BYTES * 2).map(|place| (place * 7 / 64) as u8).collect();
        let text = answer(&data, 64);
        let lines: Vec<_> = text.lines().collect();
        let swapped = [lines[1], lines[0]].into_iter().chain(lines[2..].iter().copied()).collect::<Vec<_>>();
        assert!(write(swapped.join("\n").as_bytes(), &path).is_err());
    }
}
