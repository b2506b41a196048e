//! containerd's metadata database for a set of images, the same bytes for the same images.
//!
//! A containerd at build time writes the database, because only containerd knows its schema. What depends on the time
//! of the build is then removed ([`normal`]): times, leases, the index of the import. A node puts the database and the
//! blobs in place and starts containerd; nothing is imported there. The schema is described in containerd's
//! `metadata/buckets.go`; which containerd reads which, in [`super::containerd_version`].

mod go;
mod normal;
mod schema;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use base::containerd::NAMESPACE;
use base::digest::Digest;
use base::files::read_at_most;

use self::normal::{descend, normalise};
use self::schema::{SCHEMA_BUCKET, VERSION_KEY};
use super::containerd::Containerd;
use super::containerd_version::DatabaseWriter;
use super::store::Store;
use super::stored_image::StoredImage;
use crate::bolt::{self, Bucket};

/// The prepared metadata of a set of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerdMetadata {
    tree: Bucket,
    writer: DatabaseWriter,
}

/// Lets a fresh containerd import `images` from the finished `store`, and takes over its metadata. All times become
/// `epoch`, in seconds since 1970. A missing image or blob, or one that was not asked for, is an error.
pub fn prepare(
    containerd: &Containerd,
    store: &Store,
    images: &[StoredImage],
    epoch: u64,
) -> Result<ContainerdMetadata> {
    let version = containerd.version()?;
    let database = containerd.write(&version, store, images)?;
    let raw = bolt::read(&database).context("reading the metadata database that containerd wrote")?;
    let writer = DatabaseWriter { version, schema: schema_version(&raw)? };
    let layout = Digest::of(&read_at_most(&store.index_path(), 64 << 20)?);
    let tree = normalise(&raw, images, layout, epoch).context("checking what containerd imported")?;
    Ok(ContainerdMetadata { tree, writer })
}

impl ContainerdMetadata {
    #[must_use]
    pub fn writer(&self) -> &DatabaseWriter {
        &self.writer
    }

    /// The database with those of the prepared images that are in `images`, and their blobs. A node's database must not
    /// name blobs that the node does not get: containerd would consider its images damaged.
    pub fn database(&self, images: &[StoredImage]) -> Result<Vec<u8>> {
        let names: BTreeSet<Vec<u8>> =
            images.iter().flat_map(StoredImage::names).map(|name| name.to_string().into_bytes()).collect();
        let blobs: BTreeSet<Vec<u8>> =
            images.iter().flat_map(StoredImage::blobs).map(|blob| blob.digest.oci().into_bytes()).collect();
        let mut tree = self.tree.clone();
        let namespace = descend(&mut tree, &[SCHEMA_BUCKET, NAMESPACE])?;
        descend(namespace, &["images"])?.buckets.retain(|name, _| names.contains(name));
        descend(namespace, &["content", "blob"])?.buckets.retain(|digest, _| blobs.contains(digest));
        ensure!(
            descend(namespace, &["images"])?.buckets.len() == names.len(),
            "an image was not among those that the metadata was prepared for"
        );
        Ok(bolt::write(&tree)?)
    }
}

/// The schema's version in a database.
pub fn schema_version(raw: &Bucket) -> Result<u64> {
    let value = raw.bucket(&[SCHEMA_BUCKET]).and_then(|schema| schema.value(VERSION_KEY));
    let version = value.and_then(go::varint).and_then(|version| u64::try_from(version).ok());
    version.context("the metadata database that containerd wrote has no schema version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_a_real_or_a_patched_database_is_known() {
        for (value, version) in
            [(&[6][..], Some(3)), (&[4], Some(2)), (&[8], Some(4)), (&[5], None), (&[], None)]
        {
            let mut schema = Bucket::default();
            schema.pairs.insert(VERSION_KEY.into(), value.to_vec());
            let mut tree = Bucket::default();
            tree.buckets.insert(SCHEMA_BUCKET.into(), schema);
            let tree = bolt::read(&bolt::write(&tree).unwrap()).unwrap();
            assert_eq!(schema_version(&tree).ok(), version, "{value:?}");
        }
        assert!(schema_version(&Bucket::default()).is_err());
    }
}
