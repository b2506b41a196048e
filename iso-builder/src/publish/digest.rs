//! Digests in reports.

use base::digest::Digest;
use serde::Serializer;

/// A digest as references have it.
pub(super) fn oci<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&digest.oci())
}
