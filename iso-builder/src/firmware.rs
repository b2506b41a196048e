//! Which of Debian's packages have the firmware of which machines, and how large they are.
//!
//! The kernel's drivers ask for files below `/lib/firmware` (Documentation/driver-api/firmware). Debian has most of them in packages of
//! its component `non-free-firmware`, which were divided anew for Debian 13. `servers` are the packages whose files the drivers of
//! network cards, storage controllers, InfiniBand and accelerators for encryption name (`modinfo -F firmware`), with the microcode of
//! processors and the firmware of the graphics of baseboard management controllers. `all` has those of Wi-Fi, graphics, sound and
//! television as well, and those of Netronome's cards: cards that are no longer made, for 140 MiB, more than all of `servers`.
//!
//! Neither set has metapackages, firmware for drivers that Debian's kernel lacks (DAHDI, NVIDIA's own), that of the Raspberry Pi, which
//! writes to a boot partition, or packages that ask for a licence ([`asks_for_a_licence`]).

use base::size::ByteSize;

use crate::packages::plain_name;

/// The component of Debian's mirrors that has firmware, since Debian 12.
pub const COMPONENT: &str = "non-free-firmware";

/// A set of packages that a definition names by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirmwareSet {
    Servers,
    All,
}

impl FirmwareSet {
    pub const EVERY: [Self; 2] = [Self::Servers, Self::All];

    /// Its word in a definition.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::All => "all",
        }
    }

    /// Its packages for a release of Debian, as definitions write them: some are for one architecture only.
    pub fn packages(self, suite: &str) -> impl Iterator<Item = &'static str> + use<> {
        let members = generation(suite).iter().filter(move |package| self == Self::All || package.servers);
        members.map(|package| package.name)
    }
}

/// What a package takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareSize {
    pub download: ByteSize,
    pub installed: ByteSize,
}

impl std::iter::Sum for FirmwareSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            download: sum.download + size.download,
            installed: sum.installed + size.installed,
        })
    }
}

/// The size of the package with this name alone, as Debian's index of packages had it when the table was made; none if the table
/// does not have it.
#[must_use]
pub fn size(suite: &str, name: &str) -> Option<FirmwareSize> {
    let mut known = generation(suite).iter();
    let package = known.find(|package| package.name.split(' ').next() == Some(name))?;
    let kib = |count: u32| ByteSize::bytes(u64::from(count) << 10);
    Some(FirmwareSize { download: kib(package.download_kib), installed: kib(package.installed_kib) })
}

/// True for a package, perhaps with its version, that is in the component `main`.
#[must_use]
pub fn is_free(package: &str) -> bool {
    plain_name(package) == "firmware-linux-free"
}

/// True for a package whose installation fails unless debconf knows that its licence is accepted. A build answers that it is for a
/// definition that names the package.
#[must_use]
pub fn asks_for_a_licence(name: &str) -> bool {
    ["firmware-ipw2x00", "firmware-ivtv"].contains(&name)
}

#[derive(Clone, Copy, Debug)]
struct FirmwarePackage {
    /// With the architecture that it is for, in brackets.
    name: &'static str,
    servers: bool,
    download_kib: u32,
    installed_kib: u32,
}

const fn servers(name: &'static str, download_kib: u32, installed_kib: u32) -> FirmwarePackage {
    FirmwarePackage { name, servers: true, download_kib, installed_kib }
}

const fn others(name: &'static str, download_kib: u32, installed_kib: u32) -> FirmwarePackage {
    FirmwarePackage { name, servers: false, download_kib, installed_kib }
}

/// The packages as a release of Debian divides them; later ones as Debian 13.
fn generation(suite: &str) -> &'static [FirmwarePackage] {
    match suite {
        "bookworm" | "oldstable" => BOOKWORM,
        _ => TRIXIE,
    }
}

/// Debian 12.12, from its `Packages` and `Contents`.
const BOOKWORM: &[FirmwarePackage] = &[
    servers("amd64-microcode [amd64]", 272, 698),
    others("atmel-firmware", 144, 778),
    others("bluez-firmware", 182, 345),
    others("firmware-amd-graphics", 11589, 80647),
    servers("firmware-ast", 9, 42),
    others("firmware-atheros", 16434, 60998),
    servers("firmware-bnx2", 130, 470),
    servers("firmware-bnx2x", 1697, 2231),
    others("firmware-brcm80211", 5231, 18104),
    servers("firmware-cavium", 665, 5223),
    others("firmware-intel-sound", 802, 5687),
    others("firmware-iwlwifi", 9118, 82286),
    others("firmware-libertas", 30490, 38056),
    servers("firmware-linux-free", 24, 85),
    servers("firmware-misc-nonfree", 12708, 51731),
    servers("firmware-myricom", 295, 3873),
    others("firmware-netronome", 1702, 143823),
    servers("firmware-netxen", 1244, 2060),
    others("firmware-qcom-soc [arm64]", 27683, 89011),
    servers("firmware-qlogic", 4141, 7865),
    servers("firmware-realtek", 1456, 6881),
    others("firmware-realtek-rtl8723cs-bt", 18, 39),
    others("firmware-samsung", 539, 1963),
    others("firmware-siano", 347, 1252),
    others("firmware-sof-signed", 599, 17544),
    others("firmware-ti-connectivity", 1043, 4691),
    others("firmware-zd1211", 13, 60),
    servers("intel-microcode [amd64]", 12548, 20910),
];

/// Debian 13.2, from its `Packages` and `Contents`.
const TRIXIE: &[FirmwarePackage] = &[
    servers("amd64-microcode [amd64]", 272, 698),
    others("atmel-firmware", 144, 777),
    others("bluez-firmware", 186, 354),
    others("firmware-amd-graphics", 14735, 91908),
    servers("firmware-ast", 9, 42),
    others("firmware-atheros", 28785, 97239),
    servers("firmware-bnx2", 152, 587),
    servers("firmware-bnx2x", 1719, 2348),
    others("firmware-brcm80211", 5254, 18280),
    servers("firmware-cavium", 687, 5341),
    others("firmware-cirrus", 324, 4615),
    others("firmware-intel-graphics", 6269, 28978),
    servers("firmware-intel-misc", 1825, 13520),
    others("firmware-intel-sound", 813, 4362),
    others("firmware-iwlwifi", 16303, 114123),
    others("firmware-libertas", 3539, 11413),
    servers("firmware-linux-free", 18, 96),
    others("firmware-marvell-prestera", 59886, 60463),
    others("firmware-mediatek", 19140, 46319),
    servers("firmware-misc-nonfree", 4230, 13232),
    servers("firmware-myricom", 318, 3991),
    others("firmware-netronome", 1723, 143940),
    servers("firmware-netxen", 1266, 2177),
    others("firmware-nvidia-graphics", 38557, 64591),
    others("firmware-qcom-soc [arm64]", 90385, 305155),
    servers("firmware-qlogic", 2105, 4719),
    servers("firmware-realtek", 2793, 19187),
    others("firmware-samsung", 789, 2778),
    others("firmware-siano", 369, 1286),
    others("firmware-sof-signed", 1345, 35000),
    others("firmware-ti-connectivity", 1433, 5373),
    others("firmware-zd1211", 14, 65),
    servers("intel-microcode [amd64]", 12757, 22103),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn servers_are_a_part_of_all_and_each_release_has_its_own_packages() {
        for suite in ["bookworm", "trixie", "forky"] {
            let [servers, all] = FirmwareSet::EVERY.map(|set| set.packages(suite).collect::<BTreeSet<_>>());
            assert!(servers.is_subset(&all) && servers.len() < all.len());
            for needed in ["firmware-bnx2", "firmware-bnx2x", "firmware-qlogic", "firmware-misc-nonfree"] {
                assert!(servers.contains(needed), "{suite}: {needed}");
            }
            // The DDP package of Intel's E800 series has a package of its own since Debian 13.
            assert_eq!(servers.contains("firmware-intel-misc"), suite != "bookworm");
            for other in ["graphics", "iwlwifi", "netronome"] {
                assert!(!servers.iter().any(|name| name.contains(other)), "{suite}: {other}");
                assert!(
                    other == "graphics" || all.iter().any(|name| name.contains(other)),
                    "{suite}: {other}"
                );
            }
            assert!(!all.iter().any(|name| asks_for_a_licence(name)));
            let names: BTreeSet<_> = all.iter().map(|name| name.split(' ').next().unwrap()).collect();
            assert_eq!(names.len(), all.len(), "{suite}: each once");
        }
    }

    #[test]
    fn microcode_is_for_amd64_only() {
        for suite in ["bookworm", "trixie"] {
            let microcode: Vec<_> =
                FirmwareSet::Servers.packages(suite).filter(|name| name.contains("microcode")).collect();
            assert_eq!(microcode, ["amd64-microcode [amd64]", "intel-microcode [amd64]"]);
        }
    }

    #[test]
    fn sizes_are_those_of_the_release() {
        let netronome = size("trixie", "firmware-netronome").unwrap();
        assert!(netronome.installed > ByteSize::mib(100) && netronome.download < ByteSize::mib(3));
        assert_eq!(size("bookworm", "firmware-intel-misc"), None);
        assert!(size("trixie", "intel-microcode").is_some());
        let both: FirmwareSize = [netronome, netronome].into_iter().sum();
        assert_eq!(both.installed, netronome.installed + netronome.installed);
    }
}
