//! The compression of a layer by its media type.

use super::media_types::{DOCKER_LAYER, DOCKER_LAYER_FOREIGN, OCI_LAYER, OCI_LAYER_NONDISTRIBUTABLE};

/// How containerd reads a layer before it unpacks it (its function `DiffCompression`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCompression {
    /// A plain tar archive: compression is not detected.
    None,
    /// Detected by the first bytes, regardless of the type: gzip, zstd or none.
    Recognized,
}

impl LayerCompression {
    /// The type of a media type; `None` if it is not a layer, or needs a program that containerd does not have by itself, such
    /// as an encrypted one.
    #[must_use]
    pub fn of_type(media_type: &str) -> Option<Self> {
        for layer in [OCI_LAYER, OCI_LAYER_NONDISTRIBUTABLE] {
            match media_type.strip_prefix(layer) {
                Some("") => return Some(Self::None),
                Some("+gzip" | "+zstd") => return Some(Self::Recognized),
                _ => {}
            }
        }
        for layer in [DOCKER_LAYER, DOCKER_LAYER_FOREIGN] {
            if matches!(media_type.strip_prefix(layer), Some("" | ".gzip" | ".zstd")) {
                return Some(Self::Recognized);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_type_of_oci_that_names_no_compression_is_believed() {
        for (media_type, expected) in [
            (OCI_LAYER, Some(LayerCompression::None)),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Some(LayerCompression::Recognized)),
            (
                "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
                Some(LayerCompression::Recognized),
            ),
            (DOCKER_LAYER, Some(LayerCompression::Recognized)),
            ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", Some(LayerCompression::Recognized)),
            ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", None),
            ("application/vnd.oci.image.layer.v1.tarball", None),
            ("application/vnd.cncf.helm.chart.content.v1.tar+gzip", None),
            ("", None),
        ] {
            assert_eq!(LayerCompression::of_type(media_type), expected, "{media_type}");
        }
    }
}
