//! The persistent partition: container images, straight into containerd's store.
//!
//! The partition is `/var` of the node. Names and modes are those that containerd itself uses
//! (its content store and its metadata plugin), so that it finds everything where it would have put it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Cancel;
use crate::failure::{Class, Classify};
use crate::medium::{PayloadSource, Verified};
use crate::progress::Step;
use crate::release::Payload;

/// containerd's directories below `/var`, parents first, with their modes.
const DIRECTORIES: [(&str, u32); 7] = [
    ("lib", 0o755),
    ("lib/containerd", 0o711),
    ("lib/containerd/io.containerd.content.v1.content", 0o755),
    ("lib/containerd/io.containerd.content.v1.content/blobs", 0o755),
    (BLOBS, 0o755),
    ("lib/containerd/io.containerd.content.v1.content/ingest", 0o755),
    ("lib/containerd/io.containerd.metadata.v1.bolt", 0o711),
];

const BLOBS: &str = "lib/containerd/io.containerd.content.v1.content/blobs/sha256";
const METADATA: &str = "lib/containerd/io.containerd.metadata.v1.bolt/meta.db";

/// Puts blobs and metadata into the store below `root`, each checked by its digest on the way.
pub(super) fn seed(
    root: &Path,
    blobs: &[Payload],
    metadata: Option<&Payload>,
    source: &dyn PayloadSource,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    for (path, mode) in DIRECTORIES {
        directory(&root.join(path), mode)?;
    }
    for blob in blobs {
        let path = root.join(BLOBS).join(blob.sha256.to_string());
        // containerd takes away the right to write when it commits a blob.
        copy(blob, &path, 0o444, source, step, cancel)?;
    }
    if let Some(metadata) = metadata {
        copy(metadata, &root.join(METADATA), 0o644, source, step, cancel)?;
    }
    for (path, _) in DIRECTORIES {
        let path = root.join(path);
        let synced = File::open(&path).and_then(|directory| directory.sync_all());
        synced.class(Class::DiskIo, || format!("flushing {}", path.display()))?;
    }
    Ok(())
}

/// Makes one directory, or takes the one there is, with exactly `mode`.
pub(super) fn directory(path: &Path, mode: u32) -> Result<()> {
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, Permissions::from_mode(mode)),
    };
    made.class(Class::DiskIo, || format!("making the directory {}", path.display()))
}

fn copy(
    payload: &Payload,
    path: &PathBuf,
    mode: u32,
    source: &dyn PayloadSource,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let mut reader = Verified::new(source.open(payload)?, payload, source.describe());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).class(Class::DiskIo, what)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        cancel.check()?;
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        file.write_all(&buffer[..count]).class(Class::DiskIo, what)?;
        step.advance(count as u64);
    }
    let finished = file.set_permissions(Permissions::from_mode(mode)).and_then(|()| file.sync_all());
    finished.class(Class::DiskIo, what)
}
