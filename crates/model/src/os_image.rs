//! The paths in an OS image on which builder and node have to agree.

use formats::oci::{ImageReference, ParseReferenceError};

/// Where the OS image has manifests and charts for the first server of a cluster, from the root.
pub const SHIPPED_MANIFESTS: &str = "usr/share/nqrust/manifests";

/// The image of kube-vip, which nodes with a control plane run where there is a virtual address.
pub const VIP_IMAGE: &str = "ghcr.io/kube-vip/kube-vip:v1.2.3";

/// [`VIP_IMAGE`] as a reference. Without access to its registry these nodes need it in their image store.
///
/// # Errors
/// Never, as a test shows.
pub fn vip_image() -> Result<ImageReference, ParseReferenceError> {
    VIP_IMAGE.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_the_virtual_address_is_a_reference() {
        assert_eq!(vip_image().unwrap().to_string(), VIP_IMAGE);
    }
}
