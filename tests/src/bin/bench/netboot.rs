//! The memory of an install from the network: that of a small and of a large image set, which come through
//! `iso-builder serve` and go to the disk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use installer::config::Role;
use installer::digest::{Digest, Hasher};
use installer::release::{Image, MANIFEST, Payload, Purpose, metadata_path};
use nqrust_tests::artifacts::Artifacts;

use crate::figure::{Figure, Limit};
use crate::images::{Hashed, noise, run_seed};
use crate::serve::Server;

/// The length of each layer.
const LAYER: u64 = 128 << 20;
/// The image sets, in layers: 1 GiB and 8 GiB.
const SETS: [u64; 2] = [8, 64];

/// Seeds both sets.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let medium = artifacts.disk("netboot");
    let mut peaks = [0.0; 2];
    for (peak, layers) in peaks.iter_mut().zip(SETS) {
        fill(&medium, layers)?;
        let server = Server::ours(&medium, artifacts)?;
        let to = artifacts.disk("netbooted");
        *peak = run_seed(OsStr::new(&server.medium()), &to)?.peak as f64 / 1024.0;
        fs::remove_dir_all(to)?;
    }
    fs::remove_dir_all(medium)?;
    let figure =
        Figure::new("installer, 8 GiB of images from a server", peaks[1], "MiB", ("1 GiB", peaks[0]));
    Ok(vec![figure.limit(Limit::AtMost(1.05))])
}

/// A medium whose images have so many layers.
fn fill(medium: &Path, layers: u64) -> Result<()> {
    let mut release = crate::release::bootable(medium, b"rootfs")?;
    fs::create_dir_all(medium.join("images/blobs/sha256"))?;
    for number in 0..layers {
        let (path, sha256) = layer(medium, number)?;
        let image = Image {
            name: format!("bench/{number}:1"),
            digest: sha256,
            roles: Vec::new(),
            blobs: vec![sha256],
            documents: 0,
        };
        release.images.push(image);
        release.payloads.push(Payload { path, purpose: Purpose::ImageBlob, size: LAYER, sha256 });
    }
    // Seeding copies containerd's metadata and does not look into it.
    let (path, bytes) = (metadata_path(Role::Management.name()), b"metadata");
    let file = medium.join(&path);
    fs::create_dir_all(file.parent().context("the directory of the metadata")?)?;
    fs::write(file, bytes)?;
    let (size, sha256) = (bytes.len() as u64, Digest::of(bytes));
    release.payloads.push(Payload { path, purpose: Purpose::ImageMetadata, size, sha256 });
    fs::write(medium.join(MANIFEST), release.to_bytes())?;
    Ok(())
}

/// A layer of bytes that do not compress; its path on the medium.
fn layer(medium: &Path, number: u64) -> Result<(String, Digest)> {
    let name = medium.join(format!("layer-{number}"));
    let out = BufWriter::with_capacity(1 << 20, File::create(&name)?);
    let mut out = Hashed { inner: out, hasher: Hasher::default() };
    noise(number + 1, LAYER, &mut out)?;
    out.flush()?;
    let sha256 = out.hasher.finish();
    let path = format!("images/blobs/sha256/{sha256}");
    fs::rename(&name, medium.join(&path)).context("naming a layer")?;
    Ok((path, sha256))
}
