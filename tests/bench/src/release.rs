//! Release manifests of media that are not built.

use base::digest::Digest;
use model::release::{Containerd, ExpandedImage, FORMAT, MediumKind, Payload, Release};

/// A manifest with these payloads, and otherwise minimal.
pub(crate) fn release(payloads: Vec<Payload>) -> Release {
    Release {
        format: FORMAT,
        id: "bench".into(),
        name: "Bench".into(),
        version: "1".into(),
        rollback_index: model::rollback_index::RollbackIndex::default(),
        architecture: model::architecture::Architecture::Amd64,
        epoch: 0,
        medium: MediumKind::Full,
        kernel: "6.1.0".into(),
        kernel_arguments: Vec::new(),
        expanded: ExpandedImage { size: 0, root_hash: Digest::of(b"") },
        payloads,
        images: Vec::new(),
        containerd: Containerd::default(),
        distribution: None,
        kubernetes: None,
        iso: None,
    }
}
