//! Whether the kernel of this machine loads signed modules only, and which keys it trusts for them beside its own.
//!
//! The kernels of Debian 12 and 13 lock themselves down where Secure Boot is on. For modules they trust, beside the keys that they were built
//! with, the certificates of the machine's owner, which shim hands on (`MokListRT`; CONFIG_INTEGRITY_MACHINE_KEYRING, which Debian lets count
//! without `MokListTrusted`), and those of the firmware (`db`; CONFIG_INTEGRITY_PLATFORM_KEYRING, by Debian's patch "KEYS: Make use of
//! platform keyring for module signature verify", since 6.1.20-2), unless the owner has set shim to leave those out (`MokIgnoreDB`).
//! Kernels without these patches trust fewer.

use std::fs;
use std::path::Path;

use base::files::read_text;
use formats::module_signature::{SignerId, certificates};
use model::hardware::{ModuleTrust, PresentDevice};

use crate::inventory::directory_names;
use crate::inventory::sysfs::attribute;

/// The variables of the firmware with certificates, with the identities of their owners (UEFI 2.10, 3.3; shim, MokVars.txt).
const CERTIFICATES: [&str; 2] =
    ["db-d719b2cb-3d3a-4596-a3bc-dad00e67656f", "MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23"];
/// The second of them as shim hands it on where it is too large for a variable.
const LARGE_LIST: &str = "firmware/efi/mok-variables/MokListRT";
/// There if the owner does not trust the firmware's certificates (security/integrity/platform_certs/load_uefi.c of Linux).
const WITHOUT_FIRMWARE: &str = "MokIgnoreDB-605dab50-e046-4300-abb6-3dd810dd8b23";
/// Whether Secure Boot is on, and whether the owner has switched its checks off in shim (mokutil --disable-validation).
const SECURE_BOOT: &str = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const IGNORED: &str = "MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23";
/// efivarfs puts the attributes of a variable in front of its content (Documentation/filesystems/efivarfs.rst).
const ATTRIBUTES_BYTES: usize = 4;
/// The buses whose devices have drivers in modules of extensions.
const BUSES: [&str; 2] = ["pci", "usb"];

/// The keys that the kernel trusts for modules; none if it loads unsigned ones too.
#[must_use]
pub fn module_trust(sys: &Path) -> Option<ModuleTrust> {
    if !refuses_unsigned(sys) {
        return None;
    }
    // The firmware's are the first.
    let from = usize::from(variable(sys, WITHOUT_FIRMWARE).is_some());
    let variables = CERTIFICATES[from..].iter().filter_map(|name| variable(sys, name));
    let lists: Vec<_> = variables.chain(fs::read(sys.join(LARGE_LIST)).ok()).collect();
    let found = lists.iter().flat_map(|list| certificates(list));
    Some(ModuleTrust { signers: found.filter_map(SignerId::of_certificate).map(|id| id.0).collect() })
}

/// The devices of the buses for which there are modules of extensions.
#[must_use]
pub fn present_devices(sys: &Path) -> Vec<PresentDevice> {
    let of_bus = |bus: &'static str| {
        let directory = sys.join("bus").join(bus).join("devices");
        directory_names(&directory).into_iter().filter_map(move |address| {
            let modalias = attribute(&directory.join(&address).join("modalias"))?;
            Some(PresentDevice { name: format!("{bus} {address}"), modalias })
        })
    };
    BUSES.into_iter().flat_map(of_bus).collect()
}

fn refuses_unsigned(sys: &Path) -> bool {
    if attribute(&sys.join("module/module/parameters/sig_enforce")).as_deref() == Some("Y") {
        return true;
    }
    // Documentation of security/lockdown: the level that is in effect is in brackets.
    if let Ok(levels) = read_text(&sys.join("kernel/security/lockdown")) {
        return !levels.contains("[none]");
    }
    let is_set = |name: &str| variable(sys, name).is_some_and(|content| content == [1]);
    is_set(SECURE_BOOT) && !is_set(IGNORED)
}

fn variable(sys: &Path, name: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(sys.join("firmware/efi/efivars").join(name)).ok()?;
    bytes.get(ATTRIBUTES_BYTES..).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a certificate in DER: serial number 5, an algorithm and the issuer with this letter.
    fn certificate(issuer: u8) -> Vec<u8> {
        let fields = [2, 1, 5, 0x30, 0, 0x30, 1, issuer];
        let inner = [&[0x30, u8::try_from(fields.len()).unwrap()][..], &fields].concat();
        [&[0x30, u8::try_from(inner.len()).unwrap()][..], &inner].concat()
    }

    fn list(certificate: &[u8]) -> Vec<u8> {
        let kind =
            [0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72];
        let entry = u32::try_from(certificate.len()).unwrap() + 16;
        let numbers = [28 + entry, 0, entry].map(u32::to_le_bytes).concat();
        [&kind[..], &numbers, &[0; 16], certificate].concat()
    }

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn put(&self, path: &str, bytes: &[u8]) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn variable(&self, name: &str, content: &[u8]) {
            self.put(&format!("firmware/efi/efivars/{name}"), &[&[6, 0, 0, 0][..], content].concat());
        }

        fn trust(&self) -> Option<ModuleTrust> {
            module_trust(self.0.path())
        }
    }

    #[test]
    fn a_machine_without_secure_boot_loads_every_module() {
        let machine = Machine::new();
        assert_eq!(machine.trust(), None);
        machine.variable(SECURE_BOOT, &[0]);
        assert_eq!(machine.trust(), None);
        machine.variable(SECURE_BOOT, &[1]);
        assert_eq!(machine.trust(), Some(ModuleTrust::default()));
        machine.variable(IGNORED, &[1]);
        assert_eq!(machine.trust(), None, "the owner has switched the checks of shim off");
    }

    #[test]
    fn the_kernel_itself_says_whether_it_is_locked_down() {
        for (levels, refuses) in [
            ("[none] integrity confidentiality\n", false),
            ("none [integrity] confidentiality\n", true),
            ("none integrity [confidentiality]\n", true),
        ] {
            let machine = Machine::new();
            machine.variable(SECURE_BOOT, &[u8::from(!refuses)]);
            machine.put("kernel/security/lockdown", levels.as_bytes());
            assert_eq!(machine.trust().is_some(), refuses, "{levels}");
            machine.put("module/module/parameters/sig_enforce", b"Y\n");
            assert!(machine.trust().is_some());
        }
    }

    #[test]
    fn keys_of_the_firmware_and_of_the_owner_are_trusted() {
        let machine = Machine::new();
        machine.variable(SECURE_BOOT, &[1]);
        let [firmware, owner, large] = [b'f', b'o', b'l'].map(certificate);
        machine.variable(CERTIFICATES[0], &list(&firmware));
        machine.variable(CERTIFICATES[1], &list(&owner));
        machine.put(LARGE_LIST, &list(&large));
        let id = |certificate: &[u8]| SignerId::of_certificate(certificate).unwrap().0;
        assert_eq!(machine.trust().unwrap().signers, [id(&firmware), id(&owner), id(&large)].into());
        machine.variable(WITHOUT_FIRMWARE, &[1]);
        assert_eq!(machine.trust().unwrap().signers, [id(&owner), id(&large)].into());
    }

    #[test]
    fn devices_are_known_by_what_the_kernel_says_of_them() {
        let machine = Machine::new();
        machine.put("bus/pci/devices/0000:3b:00.0/modalias", b"pci:v0000ACE0d00000001\n");
        machine.put("bus/pci/devices/0000:3c:00.0/vendor", b"0x8086\n");
        machine.put("bus/usb/devices/1-1:1.0/modalias", b"usb:v1D6Bp0002\n");
        let devices = present_devices(machine.0.path());
        let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["pci 0000:3b:00.0", "usb 1-1:1.0"]);
        assert_eq!(devices[0].modalias, "pci:v0000ACE0d00000001");
    }
}
