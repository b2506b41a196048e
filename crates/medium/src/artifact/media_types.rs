//! The media types of the parts of a release in a registry.

use model::release::Purpose;

/// `release.json`, and the artifact as a whole.
pub const RELEASE: &str = "application/vnd.nqrust.release.v1+json";
/// The signatures of `release.json`.
pub const SIGNATURES: &str = "application/vnd.nqrust.release.signatures.v1";
/// The boot code that makes an ISO start.
pub const BOOT_CODE: &str = "application/vnd.nqrust.boot-code.v1";

/// The media type of payloads of this purpose.
#[must_use]
pub fn of(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Kernel => "application/vnd.nqrust.kernel.v1",
        Purpose::Initrd => "application/vnd.nqrust.initrd.v1",
        Purpose::Rootfs => "application/vnd.nqrust.root.v1.squashfs",
        Purpose::Patch => "application/vnd.nqrust.patch.v1",
        Purpose::Shim | Purpose::MokManager | Purpose::GrubEfi => "application/vnd.nqrust.loader.v1.efi",
        Purpose::GrubBoot | Purpose::GrubCore => "application/vnd.nqrust.loader.v1.bios",
        Purpose::ImageIndex => "application/vnd.nqrust.images.index.v1+json",
        Purpose::ImageMetadata => "application/vnd.nqrust.images.metadata.v1",
        Purpose::ImageBlob => "application/vnd.nqrust.images.blob.v1",
        Purpose::InstallConfig | Purpose::InstallDefaults => "application/vnd.nqrust.configuration.v1+yaml",
        Purpose::Hardware => "application/vnd.nqrust.hardware.v1+json",
        Purpose::BootPassword => "application/vnd.nqrust.boot-password.v1",
    }
}
