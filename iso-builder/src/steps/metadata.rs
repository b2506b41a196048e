//! containerd's metadata for the image store, one database for each role, made by the base's own containerd: the
//! very version that reads it on the node.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use installer::config::Role;
use installer::failure::{Class, Failure};
use installer::files;

use super::Request;
use super::tree::Tree;
use crate::images::containerd::Containerd;
use crate::images::image::StoredImage;
use crate::images::{Store, metadata};

/// Makes `ROLE.db` for every role.
pub(super) fn make(request: &Request, base: &Path, store: &Path) -> Result<()> {
    let images = files::read_at_most(&store.join("images.json"), 64 << 20)?;
    let images: Vec<StoredImage> = serde_json::from_slice(&images).context("reading the list of images")?;
    let store = Store::create(&store.join("store"))?;
    let tree = Tree::unpack(base, &request.scratch)?;
    let importer = containerd_of(&tree)?;
    let prepared = metadata::prepare(&importer, &store, &images, request.epoch)?;
    for role in Role::ALL {
        let needed: Vec<_> = images.iter().filter(|image| image.is_for(role)).cloned().collect();
        let database = prepared.database(&needed)?;
        files::write_atomically(&request.out.join(format!("{}.db", role.name())), &database, 0o644)?;
    }
    Ok(())
}

fn containerd_of(tree: &Tree) -> Result<Containerd> {
    for program in ["usr/bin/containerd", "usr/bin/ctr"] {
        if !tree.path(program).exists() {
            return Err(Failure::new(Class::Invalid, format!("the base has no /{program}"))
                .because(anyhow::anyhow!("the definition preloads container images"))
                .hint("Include the package containerd, or preload no images.")
                .into());
        }
    }
    tree.mount_kernel_file_systems()?;
    files::make_directory(&tree.path("tmp"), 0o1777)?;
    Ok(Containerd {
        prefix: tree.enter(),
        containerd: "/usr/bin/containerd".into(),
        ctr: "/usr/bin/ctr".into(),
        scratch: tree.path("tmp"),
        scratch_inside: "/tmp".into(),
        limit: Duration::from_secs(3600),
    })
}
