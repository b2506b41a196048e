//! containerd's metadata for the image store, one database for each role. The base's own containerd writes them, and is
//! started on each of them, as on a node, to check it.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result};
use base::containerd::ContainerdPrograms;
use base::failure::{Class, Failure};
use base::files;
use model::architecture::Architecture;
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
    let tree = Tree::unpack(&metadata.base, &request.scratch)?;
    let containerd = containerd_of(&tree, request.architecture)?;
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

fn containerd_of(tree: &Tree, architecture: Architecture) -> Result<Containerd> {
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
    let programs = ContainerdPrograms {
        prefix: tree.enter(),
        containerd: "/usr/bin/containerd".into(),
        ctr: "/usr/bin/ctr".into(),
        limit: Duration::from_secs(3600),
    };
    let architecture = architecture.debian().to_owned();
    Ok(Containerd { programs, scratch: tree.path("tmp"), scratch_inside: "/tmp".into(), architecture })
}
