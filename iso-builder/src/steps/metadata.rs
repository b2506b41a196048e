//! containerd's metadata for the image store, one database for each role. The base's own containerd writes them, and is
//! started on each of them, as on a node, to check it.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result};
use base::containerd::ContainerdPrograms;
use base::failure::{Class, Failure};
use base::files;
use model::config::Role;
use serde::{Deserialize, Serialize};

use super::request::{MetadataSource, StepRequest};
use super::tree::Tree;
use crate::images::containerd::Containerd;
use crate::images::containerd_version::{DatabaseWriter, NodeContainerd, compatible};
use crate::images::stored_image::StoredImage;
use crate::images::{Store, metadata};

pub const WRITTEN_OUTPUT: &str = "containerd.json";

/// Which containerd wrote the databases, and which one reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenMetadata {
    /// The containerd that wrote them, and the version of their schema.
    pub writer: DatabaseWriter,
    pub node: NodeContainerd,
}

/// Makes `ROLE.db` for every role, and [`WRITTEN_OUTPUT`].
pub(super) fn make(request: &StepRequest, metadata: &MetadataSource) -> Result<()> {
    let images = files::read_at_most(&metadata.store.join("images.json"), 64 << 20)?;
    let images: Vec<StoredImage> = serde_json::from_slice(&images).context("reading the list of images")?;
    let store = Store::create(&metadata.store.join("store"))?;
    let tree = Tree::unpack_in_memory(&metadata.base, &request.scratch, 0)?;
    let containerd = containerd_of(&tree, request)?;
    let prepared = metadata::prepare(&containerd, &store, &images, request.epoch)?;
    let written = WrittenMetadata { writer: prepared.writer().clone(), node: metadata.node.clone() };
    compatible(&written.writer, &written.node)?;
    let mut verified = HashSet::new();
    for role in Role::ALL {
        let needed: Vec<_> = images.iter().filter(|image| image.is_for(role)).cloned().collect();
        let database = prepared.database(&needed)?;
        files::write_atomically(&request.out.join(format!("{}.db", role.name())), &database, 0o644)?;
        if !verified.contains(&database) {
            let verifying = || format!("checking the images of the role {}", role.name());
            containerd.verify(&store, &needed, &database).with_context(verifying)?;
            verified.insert(database);
        }
    }
    files::write_atomically(&request.out.join(WRITTEN_OUTPUT), &serde_json::to_vec(&written)?, 0o644)
}

/// The containerd of the tree. It works in a directory on the disk, where blobs of the store are linked.
fn containerd_of(tree: &Tree, request: &StepRequest) -> Result<Containerd> {
    for program in ["usr/bin/containerd", "usr/bin/ctr"] {
        if !tree.path(program).exists() {
            return Err(Failure::new(Class::Invalid, format!("the base has no /{program}"))
                .because(anyhow::anyhow!("the definition preloads container images"))
                .hint("Include the package containerd, or preload no images.")
                .into());
        }
    }
    tree.mount_kernel_file_systems()?;
    let scratch = request.scratch.join("containerd");
    files::make_directory(&scratch, 0o755)?;
    tree.bind(&scratch, "tmp")?;
    let programs = ContainerdPrograms {
        prefix: tree.enter(),
        containerd: "/usr/bin/containerd".into(),
        ctr: "/usr/bin/ctr".into(),
        limit: Duration::from_secs(3600),
    };
    let architecture = request.architecture.debian().to_owned();
    Ok(Containerd { programs, scratch, scratch_inside: "/tmp".into(), architecture })
}
