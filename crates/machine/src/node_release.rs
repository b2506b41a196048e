//! The release manifest of the node: what runs, and what was installed.

use std::path::Path;

use anyhow::{Context, Result};

use super::paths::below;
use base::failure::{Class, Failure};
use base::files;
use model::release::Release;

/// The release manifest that an install leaves on the node.
pub const RELEASE: &str = "/oem/release.json";

/// The release manifest of the slot that runs. The initrd puts it there; after an update it is not that of the install.
pub const RUNNING: &str = "/run/nqrust/release.json";

/// The release manifest of the node at `root`; [`Class::Hardware`] if there is none, because then this is no installed node.
pub fn read(root: &Path) -> Result<Release> {
    let running = below(root, RUNNING);
    let path = if running.exists() { running } else { below(root, RELEASE) };
    if !path.exists() {
        return Err(Failure::new(Class::Hardware, format!("{} does not exist", path.display()))
            .hint("Run this on an installed node, as root.")
            .into());
    }
    let bytes = files::read_at_most(&path, 64 << 20)?;
    Release::parse(&bytes).with_context(|| format!("reading {}", path.display()))
}
