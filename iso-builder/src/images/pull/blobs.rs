//! Downloads the blobs that the cache lacks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use base::failure::{Class, class_of};
use base::progress::Progress;
use formats::oci::ImageReference;

use super::super::blob::Blob;
use super::super::stored_image::StoredImage;
use super::{BlobCache, ImageRegistry};
use base::parallel::{self, locked};

/// Makes the cache hold every blob of `images`. Those that it has are read and, if damaged, downloaded again.
pub fn blobs(
    images: &[StoredImage],
    registry: &dyn ImageRegistry,
    cache: &BlobCache,
    transfers: usize,
    progress: &Progress,
) -> Result<()> {
    let mut users: BTreeMap<Blob, Vec<&ImageReference>> = BTreeMap::new();
    for image in images {
        for blob in image.blobs() {
            users.entry(blob).or_default().push(&image.name);
        }
    }
    // The largest first, so that the others do not end up waiting for one transfer.
    let mut blobs: Vec<_> = users.into_iter().collect();
    blobs.sort_by_key(|(blob, _)| std::cmp::Reverse(blob.size));
    let lacking = Mutex::new(Vec::new());
    let check = || {
        parallel::for_each(&blobs, transfers, |item| {
            if !cache.holds(item.0)? {
                locked(&lacking).push(item);
            }
            Ok(())
        })
    };
    if !blobs.is_empty() {
        progress.within("check-blobs", format!("Checking {} blobs in the cache", blobs.len()), check)?;
    }
    let lacking = locked(&lacking).split_off(0);
    if lacking.is_empty() {
        return Ok(());
    }
    let total = lacking.iter().map(|(blob, _)| blob.size).sum();
    let step = Mutex::new(progress.step("pull", format!("Pulling {} blobs", lacking.len()), Some(total)));
    parallel::for_each(&lacking, transfers, |(blob, users)| {
        one(*blob, users, registry, cache, &mut |bytes| locked(&step).advance(bytes))
    })?;
    step.into_inner().unwrap_or_else(PoisonError::into_inner).done();
    Ok(())
}

/// A blob from the first of its images' repositories that has it.
pub(super) fn one(
    blob: Blob,
    users: &[&ImageReference],
    registry: &dyn ImageRegistry,
    cache: &BlobCache,
    advance: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut failure = None;
    for image in users {
        let open = |offset| registry.blob(image.repository(), blob, offset);
        match cache.fill(blob, &open, advance) {
            Ok(()) => return Ok(()),
            Err(error) => {
                let of_source = matches!(class_of(&error), Class::Network | Class::Verification);
                failure.get_or_insert(error.context(format!("pulling {image}")));
                // Another repository may have an undamaged copy of the blob; another disk it does not have.
                if !of_source {
                    break;
                }
            }
        }
    }
    failure.map_or(Ok(()), Err)
}
