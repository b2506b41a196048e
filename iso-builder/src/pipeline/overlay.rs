//! A directory that is laid over a tree: of the host, of the product, or of the outputs of a step.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use base::digest::Digest;

use crate::cache::StepOutputs;
use crate::files::digest_of_path;
use crate::product::{ProductOverlays, ProductTree};

#[derive(Clone, Debug)]
pub(super) enum Overlay {
    Directory(PathBuf),
    Product(Arc<ProductOverlays>, ProductTree),
    /// An output of this name, which may not be on this host yet.
    Output(StepOutputs, &'static str),
}

impl Overlay {
    pub(super) fn digest(&self) -> Result<Digest> {
        match self {
            Self::Directory(path) => digest_of_path(path),
            Self::Product(_, tree) => Ok(tree.digest()),
            Self::Output(outputs, name) => outputs.digest_of(name),
        }
    }

    /// The directory; that of a step is fetched if it is not here yet.
    pub(super) fn path(&self) -> Result<PathBuf> {
        match self {
            Self::Directory(path) => Ok(path.clone()),
            Self::Product(overlays, tree) => overlays.directory(*tree),
            Self::Output(outputs, name) => outputs.path(name),
        }
    }
}

pub(super) fn digests(overlays: &[Overlay]) -> Result<Vec<Digest>> {
    overlays.iter().map(Overlay::digest).collect()
}

pub(super) fn paths(overlays: &[Overlay]) -> Result<Vec<PathBuf>> {
    overlays.iter().map(Overlay::path).collect()
}
