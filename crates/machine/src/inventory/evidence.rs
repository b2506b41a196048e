//! Which entries of an inventory are the same disk, and which of a disk's names are its own.
//!
//! Makers leave names unfilled: a world wide name of zeros, a serial number that counts up. Such a name is on many disks and
//! identifies none of them ([`Disk::own_wwn`], [`Disk::own_serial`]). Links in `/dev/disk/by-id` repeat these names, and leave out
//! the namespace of an NVMe disk: of several namespaces, the last one that udev saw has such a link ([`Inventory::also_at`]).

use std::path::Path;

use super::Inventory;
use super::disk::Disk;
use model::machine::identity::real_text;

/// Digits of a world wide name that only tell its maker: the format and the IEEE number (NAA 5 and 6, EUI-64).
const MAKER_DIGITS: usize = 7;

impl Disk {
    /// The world wide name without the prefix of its format, in lower case, if it identifies this disk.
    #[must_use]
    pub fn own_wwn(&self) -> Option<String> {
        let wwn = self.wwn.as_deref()?;
        let bare = bare_wwn(wwn);
        if wwn.starts_with("t10.") {
            // Maker, model and serial number in one text; often without the last.
            let words = self.model.iter().flat_map(|model| model.split_whitespace());
            let rest = words.fold(bare.clone(), |rest, word| rest.replace(&word.to_lowercase(), ""));
            let rest = rest.trim_start_matches("ata").to_owned();
            return (!is_filler(&rest)).then_some(bare);
        }
        let maker = bare.get(MAKER_DIGITS..).filter(|_| bare.len() >= 16);
        (!is_filler(&bare) && !maker.is_some_and(is_filler)).then_some(bare)
    }

    /// The serial number, if it identifies this disk.
    #[must_use]
    pub fn own_serial(&self) -> Option<&str> {
        self.serial.as_deref().filter(|serial| !is_filler(serial))
    }

    /// Whether `other` is another path to this disk: both have the same world wide name, and nothing else differs that belongs to
    /// the disk.
    #[must_use]
    pub fn is_path_of(&self, other: &Self) -> bool {
        // Many disks are compared with each other one, so what needs no copy of a text comes first.
        let same_text =
            |(one, two): (&str, &str)| without_format(one).eq_ignore_ascii_case(without_format(two));
        let could_be = self.name != other.name
            && (self.size, self.logical_sector) == (other.size, other.logical_sector)
            && (self.namespace, &self.model) == (other.namespace, &other.model)
            && self.wwn.as_deref().zip(other.wwn.as_deref()).is_some_and(same_text);
        let same_name = || self.own_wwn().is_some_and(|name| other.own_wwn() == Some(name));
        let other_serial =
            || matches!((self.own_serial(), other.own_serial()), (Some(one), Some(two)) if one != two);
        could_be && same_name() && !other_serial()
    }

    /// The names of its links in a directory below `/dev/disk`, those of its paths too.
    #[must_use]
    pub fn links_in(&self, directory: &str) -> Vec<String> {
        let links = self.links.iter().chain(self.paths.iter().flat_map(|way| &way.links));
        let links = links.filter(|link| link.parent().is_some_and(|parent| parent.ends_with(directory)));
        links.filter_map(|link| link.file_name()).map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Whether a link of this name in `/dev/disk/by-id` could lead to this disk, from what the link has of its names.
    fn could_have(&self, link: &str) -> bool {
        let wwn = self.wwn.as_deref().map(bare_wwn);
        // `wwn-0x…`, `scsi-3…` and `nvme-eui.…` end in the world wide name.
        if wwn.is_some_and(|wwn| wwn.len() >= 8 && link.to_ascii_lowercase().ends_with(&wwn)) {
            return true;
        }
        let Some(serial) = self.serial.as_deref().filter(|serial| !serial.is_empty()) else { return false };
        let (model, serial) = (self.model.as_deref().map(in_link), in_link(serial));
        let end = match self.namespace {
            Some(number) if link.ends_with(&format!("{serial}_{number}")) => format!("{serial}_{number}"),
            _ => serial,
        };
        // Links to USB disks end in host and unit, such as `-0:0`.
        let unit = link.rsplit_once('-').filter(|(_, unit)| unit.contains(':'));
        let Some(start) = unit.map_or(link, |(link, _)| link).strip_suffix(&end) else { return false };
        let whole = start.ends_with(['_', '-']);
        // Another model has another link, if the link has a model at all.
        let bare = !start.trim_end_matches(['_', '-']).contains(['_', '-']);
        whole && model.is_none_or(|model| bare || start.contains(&model))
    }
}

impl Inventory {
    /// The other disks to which the link at `path` could lead as well as to `disk`. A node, a link by port and a link with a name
    /// of its own lead to one disk.
    #[must_use]
    pub fn also_at<'a>(&'a self, path: &Path, disk: &Disk) -> Vec<&'a Disk> {
        let by_id = path.parent().is_some_and(|parent| parent.ends_with("by-id"));
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| by_id) else {
            return Vec::new();
        };
        let other = |other: &&Disk| other.name != disk.name && !other.is_path_of(disk);
        let others = self.disks.iter().filter(other);
        others.filter(|other| other.is_at(path) || disk.could_have(name) && other.could_have(name)).collect()
    }

    /// The other namespaces of the NVMe controller of `disk`. Linux 6.12 looks at them side by side and numbers them as they answer, so that
    /// `/dev/nvme0n1` can be another one after a restart.
    #[must_use]
    pub fn other_namespaces<'a>(&'a self, disk: &Disk) -> Vec<&'a Disk> {
        let controller = |disk: &Disk| {
            let (controller, _) = disk.name.rsplit_once('n').filter(|_| disk.namespace.is_some())?;
            Some(controller.to_owned())
        };
        let Some(own) = controller(disk) else { return Vec::new() };
        let others = self.disks.iter().filter(|other| other.name != disk.name);
        others.filter(|other| controller(other).as_ref() == Some(&own)).collect()
    }

    /// The disks that are other paths to `disk`: no multipath map holds them, and what is written on one, the others do not see.
    #[must_use]
    pub fn other_paths<'a>(&'a self, disk: &Disk) -> Vec<&'a Disk> {
        self.disks.iter().filter(|other| other.is_path_of(disk)).collect()
    }
}

/// A world wide name in lower case without the prefix of its format: the kernel writes `naa.5000c500…` and `eui.0025…` where udev
/// and labels on disks have `0x5000c500…`.
#[must_use]
pub fn bare_wwn(text: &str) -> String {
    without_format(text).to_ascii_lowercase()
}

/// The text without that prefix, in whatever case.
fn without_format(text: &str) -> &str {
    let prefixes = ["naa.", "eui.", "uuid.", "t10.", "0x"];
    let rest = |prefix: &&str| {
        let (start, rest) = text.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(rest)
    };
    prefixes.iter().find_map(rest).unwrap_or(text)
}

/// Whether the text is what makers leave in a field that they do not fill: a placeholder, one character, a short text again and
/// again, or digits in their order.
fn is_filler(text: &str) -> bool {
    let plain: Vec<u8> = text.bytes().filter(u8::is_ascii_alphanumeric).collect();
    let repeated = |period: &usize| {
        plain.len().is_multiple_of(*period) && plain.chunks(*period).all(|part| part == &plain[..*period])
    };
    let lower = String::from_utf8_lossy(&plain).to_ascii_lowercase();
    let counts = |digits: &str| {
        let up = digits.repeat(4);
        let down: String = up.chars().rev().collect();
        lower.len() >= 6 && [up, down].iter().any(|row| row.contains(&lower))
    };
    real_text(text).is_none()
        || plain.len() >= 4 && plain.iter().all(|byte| byte == &plain[0])
        || plain.len() >= 8 && (1..=plain.len() / 2).any(|period| repeated(&period))
        || ["0123456789abcdef", "0123456789", "123456789"].iter().any(|digits| counts(digits))
}

/// The text as udev has it in links: blanks and most punctuation become underscores.
#[must_use]
pub fn in_link(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c);
    let trimmed: Vec<_> = text.split_whitespace().collect();
    trimmed.join("_").chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::size::ByteSize;
    use testing::disks::disk;

    fn with(wwn: Option<&str>, serial: Option<&str>) -> Disk {
        Disk { wwn: wwn.map(Into::into), serial: serial.map(Into::into), ..disk("sda", ByteSize::gib(16)) }
    }

    #[test]
    fn a_name_that_a_maker_has_not_filled_in_identifies_no_disk() {
        for wwn in [
            "naa.0000000000000000",
            "0x0000000000000000",
            "naa.ffffffffffffffff",
            "eui.0000000000000000",
            "eui.00000000000000000000000000000000",
            "naa.0123456789abcdef",
            "eui.0123456789ABCDEF",
            "naa.5000000000000000",
            "naa.5000c50000000000",
            "eui.0025380000000000",
            "naa.1234567812345678",
            "eui.deadbeefdeadbeef",
            "naa.fedcba9876543210",
            "t10.ATA     QEMU HARDDISK                   ",
            "",
        ] {
            let disk = Disk { model: Some("QEMU HARDDISK".into()), ..with(Some(wwn), None) };
            assert_eq!(disk.own_wwn(), None, "{wwn}");
        }
        for serial in
            ["", "0", "0000", "00000000", "FFFFFFFF", "0123456789", "123456789012", "ABCDABCD", "None"]
        {
            assert_eq!(with(None, Some(serial)).own_serial(), None, "{serial:?}");
        }
        for wwn in [
            "naa.5000c500a1b2c3d4",
            "eui.0025385b71b00001",
            "eui.000000000000000100a0752300000001",
            "naa.600a098038303053453f463045727654",
            "t10.ATA     QEMU HARDDISK      QM00001",
        ] {
            let disk = Disk { model: Some("QEMU HARDDISK".into()), ..with(Some(wwn), None) };
            assert!(disk.own_wwn().is_some(), "{wwn}");
        }
        for serial in ["SER-sda", "S64DNF0R", "LUN0", "4C530001", "1", "2329EX01"] {
            assert_eq!(with(None, Some(serial)).own_serial(), Some(serial));
        }
    }

    #[test]
    fn paths_to_one_disk_have_all_that_belongs_to_it_in_common() {
        const WWN: Option<&str> = Some("naa.600a098038303053453f463045727654");
        type Change = fn(&mut Disk);
        let cases: [(bool, Change); 8] = [
            (true, |_| ()),
            (true, |disk| disk.serial = None),
            (true, |disk| disk.wwn = Some("0x600A098038303053453F463045727654".into())),
            (false, |disk| disk.serial = Some("LUN1".into())),
            (false, |disk| disk.size = ByteSize::gib(17)),
            (false, |disk| disk.model = Some("OTHER".into())),
            (false, |disk| disk.wwn = None),
            (false, |disk| disk.namespace = Some(2)),
        ];
        for (number, (same, change)) in cases.into_iter().enumerate() {
            let one = with(WWN, Some("LUN0"));
            let mut other = Disk { name: "sdb".into(), ..one.clone() };
            change(&mut other);
            assert_eq!((one.is_path_of(&other), other.is_path_of(&one)), (same, same), "case {number}");
        }
        let filler = with(Some("naa.0000000000000000"), Some("LUN0"));
        assert!(!filler.is_path_of(&Disk { name: "sdb".into(), ..filler.clone() }));
    }

    #[test]
    fn a_link_leads_to_one_disk_unless_another_could_have_it_too() {
        let namespace = |number: u32, wwn: &str| Disk {
            name: format!("nvme0n{number}"),
            model: Some("Example 7450 960GB".into()),
            namespace: Some(number),
            links: vec![format!("/dev/disk/by-id/nvme-Example_7450_960GB_2329EX01_{number}").into()],
            ..with(Some(wwn), Some("2329EX01"))
        };
        let (one, two) = (namespace(1, "eui.0001"), namespace(2, "eui.0002"));
        let inventory = Inventory { disks: vec![one.clone(), two.clone()], ..Inventory::default() };
        let shared = |inventory: &Inventory, link: &str, disk: &Disk| {
            !inventory.also_at(Path::new(link), disk).is_empty()
        };
        let bare = "/dev/disk/by-id/nvme-Example_7450_960GB_2329EX01";
        assert!(shared(&inventory, bare, &two) && shared(&inventory, bare, &one));
        for whole in [&format!("{bare}_2"), "/dev/nvme0n2", "/dev/disk/by-path/pci-0000:01:00.0-nvme-2"] {
            assert!(!shared(&inventory, whole, &two), "{whole}");
        }
        let alone = Inventory { disks: vec![one.clone()], ..Inventory::default() };
        assert!(!shared(&alone, bare, &one));
        // A world wide name of zeros.
        let zeros = |name: &str| Disk { name: name.into(), ..with(Some("naa.0000000000000000"), Some(name)) };
        let inventory = Inventory { disks: vec![zeros("sda"), zeros("sdb")], ..Inventory::default() };
        assert!(shared(&inventory, "/dev/disk/by-id/wwn-0x0000000000000000", &inventory.disks[0]));
        // The end of another serial number is none.
        let named = |name: &str, serial: &str| Disk { name: name.into(), ..with(None, Some(serial)) };
        let inventory =
            Inventory { disks: vec![named("sda", "AB1"), named("sdb", "1")], ..Inventory::default() };
        assert!(!shared(&inventory, "/dev/disk/by-id/ata-QEMU_HARDDISK_AB1", &inventory.disks[0]));
    }
}
