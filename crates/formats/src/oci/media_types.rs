//! The media types of manifests, indexes, configurations and layers of images: those of the OCI image specification 1.1
//! (`media-types.md`) and those of Docker's image manifest version 2, schema 2.

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An index of manifests, one for each platform.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub const OCI_LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// A layer that may not be passed on; its compressed forms end as those of [`OCI_LAYER`].
pub const OCI_LAYER_NONDISTRIBUTABLE: &str = "application/vnd.oci.image.layer.nondistributable.v1.tar";

pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
/// A layer of Docker's that may not be passed on.
pub const DOCKER_LAYER_FOREIGN: &str = "application/vnd.docker.image.rootfs.foreign.diff.tar";
/// An empty config: `{}`.
pub const OCI_EMPTY: &str = "application/vnd.oci.empty.v1+json";
