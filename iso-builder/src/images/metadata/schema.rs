//! Where containerd's database has the version of its schema.

/// The bucket of the schema's major version.
pub(super) const SCHEMA_BUCKET: &str = "v1";
/// The key of the schema's version in it.
pub(super) const VERSION_KEY: &str = "version";
