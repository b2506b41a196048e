//! Compares the images that a containerd lists with those that it should have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::containerd::{ContainerdDaemon, NAMESPACE, PINNED};
use base::failure::{Class, Failure};

use super::stored_image::StoredImage;

/// A lease that is created only to be deleted.
const CHECK_LEASE: &str = "check";

/// Requires that containerd has `images`, each complete, under all their names, and no other images or blobs.
pub(super) fn has_exactly(daemon: &ContainerdDaemon<'_>, images: &[StoredImage]) -> Result<()> {
    // With the snapshotter that runs here; whether images are unpacked does not matter.
    let words = ["--namespace", NAMESPACE, "images", "check", "--snapshotter", "native"];
    // An image without its configuration is not a row of the table, but an error that names it.
    let table = text(daemon, words).map_err(refused)?;
    compare_images(&table, images)?;
    let (label, value) = PINNED;
    let filter = format!(r#"labels."{label}"=={value}"#);
    let pinned = text(daemon, ["--namespace", NAMESPACE, "images", "ls", "--quiet", &filter])?;
    compare_pinned(&pinned, images)?;
    compare_blobs(text(daemon, ["--namespace", NAMESPACE, "content", "ls", "--quiet"])?.lines(), images)
}

/// Runs containerd's garbage collector to its end.
pub(super) fn collect(daemon: &ContainerdDaemon<'_>) -> Result<()> {
    let leases = ["--namespace", NAMESPACE, "leases"];
    daemon.client().ctr(leases.into_iter().chain(["create", "--id", CHECK_LEASE]))?;
    daemon.client().ctr(leases.into_iter().chain(["delete", "--sync", CHECK_LEASE]))?;
    Ok(())
}

/// Requires that the blobs of `images`, and no others, are in `directory`.
pub(super) fn lie_in(directory: &Path, images: &[StoredImage]) -> Result<()> {
    let reading = || format!("reading {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(reading)? {
        found.push(format!("sha256:{}", entry.with_context(reading)?.file_name().to_string_lossy()));
    }
    compare_blobs(found.iter().map(String::as_str), images)
}

fn text<'a>(daemon: &ContainerdDaemon<'_>, words: impl IntoIterator<Item = &'a str>) -> Result<String> {
    String::from_utf8(daemon.client().ctr(words)?).context("reading what ctr prints")
}

/// `table` is what `ctr images check` prints: a line for each image with its name, media type, digest and state.
fn compare_images(table: &str, images: &[StoredImage]) -> Result<()> {
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    for image in images {
        let digest = image.target().blob.digest.oci();
        expected.extend(image.names().iter().map(|name| (name.to_string(), digest.clone())));
    }
    for line in table.lines().skip_while(|line| line.starts_with("REF ")) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let (digest, state) = (words.nth(1), words.next());
        match expected.remove(name) {
            None => bail!(wrong(format!("an image {name} that was not asked for"))),
            Some(expected) if digest != Some(&expected) => {
                bail!(wrong(format!(
                    "the image {name} as {} instead of {expected}",
                    digest.unwrap_or("nothing")
                )))
            }
            Some(_) if state != Some("complete") => {
                let state: Vec<&str> = state.into_iter().chain(words.next()).collect();
                bail!(wrong(format!("the image {name} {}", state.join(" "))))
            }
            Some(_) => {}
        }
    }
    match expected.into_keys().next() {
        Some(name) => bail!(wrong(format!("no image {name}"))),
        None => Ok(()),
    }
}

/// `pinned` are the names of the images that the kubelet does not remove.
fn compare_pinned(pinned: &str, images: &[StoredImage]) -> Result<()> {
    let pinned: BTreeSet<&str> = pinned.lines().collect();
    let names = images.iter().flat_map(StoredImage::names);
    match names.map(|name| name.to_string()).find(|name| !pinned.contains(name.as_str())) {
        Some(name) => bail!(wrong(format!("the image {name} without the label that pins it"))),
        None => Ok(()),
    }
}

fn compare_blobs<'a>(found: impl Iterator<Item = &'a str>, images: &[StoredImage]) -> Result<()> {
    let found: BTreeSet<&str> = found.collect();
    let mut expected = BTreeSet::new();
    for image in images {
        for blob in image.blobs() {
            let digest = blob.digest.oci();
            if !found.contains(digest.as_str()) {
                bail!(wrong(format!("no blob {digest} of the image {}", image.name)));
            }
            expected.insert(digest);
        }
    }
    match found.into_iter().find(|digest| !expected.contains(*digest)) {
        Some(stray) => bail!(wrong(format!("a blob {stray} that belongs to no image"))),
        None => Ok(()),
    }
}

fn wrong(what: String) -> Failure {
    refused(anyhow::anyhow!("it has {what}"))
}

fn refused(why: anyhow::Error) -> Failure {
    Failure::new(Class::Verification, "checking the images with a node's containerd")
        .because(why)
        .hint("Build again with an empty directory for --cache-dir; if it stays, report it with the image definition.")
}
