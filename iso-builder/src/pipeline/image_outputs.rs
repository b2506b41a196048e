//! Image stores among the outputs of steps.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::progress::Progress;
use serde_json::json;
use walkdir::WalkDir;

use crate::cache::{Cache, StepKey, StepOutputs};
use crate::images::import::{self, ImageImport};
use crate::images::pull::DEFAULT_TRANSFERS;
use crate::images::stored_image::StoredImage;
use crate::images::{Store, check_layers};

pub(super) const STORE_OUTPUT: &str = "store";
/// The output that lists the images of the store.
pub(super) const LIST_OUTPUT: &str = "images.json";

/// The images of a layout or an archive, whose digest is `content`, in a store of their own.
pub(super) fn imported(
    import: &ImageImport<'_>,
    content: Digest,
    cache: &Cache,
    progress: &Progress,
) -> Result<StepOutputs> {
    let inputs = json!({
        "content": content,
        "references": import.references,
        // The file of checksums refers to it.
        "name": import.path.file_name().map(|name| name.to_string_lossy()),
        "checksums": import.checksums.map(crate::files::digest_of_path).transpose()?,
        "architecture": import.architecture,
    });
    cache.step(&StepKey::new("images-local", 4, inputs), |out| {
        let total = files_size(import.path)?;
        let mut step = progress.step("import", format!("Reading {}", import.path.display()), Some(total));
        let store = Store::create(&out.join(STORE_OUTPUT))?;
        let imported = import::import(import, &store, &mut |bytes| step.advance(bytes))?;
        step.done();
        imported.notes.iter().for_each(|note| progress.note("import", note));
        store.keep_only(&imported.images)?;
        check_layers(&store, &imported.images, DEFAULT_TRANSFERS, progress)?;
        fs::write(out.join(LIST_OUTPUT), serde_json::to_vec(&imported.images)?)
            .context("writing the list of images")
    })
}

/// Bytes of a file, or of all files below a directory.
fn files_size(path: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in WalkDir::new(path) {
        let entry = entry.with_context(|| format!("reading {}", path.display()))?;
        if entry.file_type().is_file() {
            size += entry.metadata().with_context(|| format!("reading {}", path.display()))?.len();
        }
    }
    Ok(size)
}

/// The images that a step has put into its store.
pub(super) fn stored(outputs: &StepOutputs) -> Result<Vec<StoredImage>> {
    let bytes = files::read_at_most(&outputs.path(LIST_OUTPUT)?, 64 << 20)?;
    serde_json::from_slice(&bytes).context("reading the list of images")
}
