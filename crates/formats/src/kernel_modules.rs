//! What the modules of a kernel say of themselves: the devices that each drives and the firmware that it may want.
//!
//! A module has that in its section `.modinfo` (linux/module.h), as `KEY=VALUE` with a zero behind each. What is built into the
//! kernel is in `modules.builtin.modinfo` beside the modules, as `MODULE.KEY=VALUE` (Documentation/kbuild/kbuild.rst). Which devices a
//! module drives are patterns for the `modalias` of sysfs; depmod(8) has collected them in `modules.alias`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::module_signature::SIGNATURE_END;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

/// What one module says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Whether it is part of the kernel itself.
    pub built_in: bool,
    /// Patterns of the devices that it drives, for [`matches()`].
    pub aliases: BTreeSet<String>,
    /// Files of firmware that it may ask for, below the directories of firmware. A few have a `*` in them.
    pub firmware: BTreeSet<String>,
}

/// What the file of one module says of the kernel that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleHeader {
    /// The processor, `e_machine` of ELF.
    pub machine: u16,
    /// The release of the kernel and the options that it was built with, with spaces between (`VERMAGIC_STRING` of
    /// linux/vermagic.h); empty if the module does not say.
    pub vermagic: String,
    /// The version of the module itself.
    pub version: Option<String>,
    pub license: Option<String>,
    /// Whether a signature is appended.
    pub signed: bool,
}

impl ModuleHeader {
    /// The release of the kernel that the module was built for, as `uname -r` prints it.
    #[must_use]
    pub fn kernel(&self) -> Option<&str> {
        self.vermagic.split_whitespace().next()
    }
}

/// What the module with these bytes says of its kernel.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if the bytes are no module: a 64-bit ELF object with a section `.modinfo`.
pub fn header(bytes: &[u8]) -> io::Result<ModuleHeader> {
    let invalid = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let elf = |error: object::read::Error| invalid(error.to_string());
    let file = FileHeader64::<LittleEndian>::parse(bytes).map_err(elf)?;
    let endian = file.endian().map_err(elf)?;
    let mut header = ModuleHeader {
        machine: file.e_machine(endian).0,
        signed: bytes.ends_with(SIGNATURE_END),
        ..ModuleHeader::default()
    };
    let records = modinfo(bytes).map_err(elf)?.ok_or_else(|| invalid("it has no section .modinfo".into()))?;
    for (key, value) in records {
        match key {
            "vermagic" => value.clone_into(&mut header.vermagic),
            "version" => header.version = Some(value.to_owned()),
            "license" => header.license = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(header)
}

/// The modules of the kernel whose directory below `/usr/lib/modules` is `directory`, by the names that the kernel has for them. Packed
/// modules are known by `modules.alias` alone, so without their firmware. A module has the firmware of those that it depends on too:
/// `qede` drives a network card whose firmware `qed` loads. Empty if the directory is missing.
///
/// # Errors
/// Reading fails.
pub fn read_all(directory: &Path) -> io::Result<BTreeMap<String, ModuleInfo>> {
    let mut modules = read_tables(directory)?;
    for path in files(directory)? {
        let module = modules.entry(name_of(&path)).or_default();
        if is_plain(&path) {
            match read_file(&path) {
                Ok(info) => module.firmware.extend(info.firmware),
                // The kernel refuses to load it; that is no reason to know nothing of the others.
                Err(error) if error.kind() == ErrorKind::InvalidData => {}
                Err(error) => return Err(error),
            }
        }
    }
    let own: BTreeMap<_, _> =
        modules.iter().map(|(name, info)| (name.clone(), info.firmware.clone())).collect();
    for (name, needed) in dependencies(directory)? {
        if let Some(module) = modules.get_mut(&name) {
            module.firmware.extend(needed.iter().filter_map(|name| own.get(name)).flatten().cloned());
        }
    }
    Ok(modules)
}

/// The modules that each module depends on, also by way of others, by the names that the kernel has for them. They are in `modules.dep`
/// of depmod(8).
///
/// # Errors
/// Reading fails.
pub fn dependencies(directory: &Path) -> io::Result<BTreeMap<String, Vec<String>>> {
    let lines = optional_lines(&directory.join("modules.dep"))?;
    let name = |path: &str| name_of(Path::new(path));
    let words = lines.iter().filter_map(|line| line.split_once(':'));
    Ok(words.map(|(module, rest)| (name(module), rest.split_whitespace().map(name).collect())).collect())
}

/// The same without reading the modules: those that are built in, and those that devices are known for. Only the former have firmware.
///
/// # Errors
/// Reading fails.
pub fn read_tables(directory: &Path) -> io::Result<BTreeMap<String, ModuleInfo>> {
    let mut modules: BTreeMap<String, ModuleInfo> = BTreeMap::new();
    for path in optional_lines(&directory.join("modules.builtin"))? {
        modules.entry(name_of(Path::new(&path))).or_default().built_in = true;
    }
    let built_in = optional(&directory.join("modules.builtin.modinfo"))?;
    for record in records(&built_in) {
        let words = record.split_once('.').and_then(|(module, rest)| Some((module, rest.split_once('=')?)));
        if let Some((module, (key, value))) = words {
            let module = modules.entry(kernel_name(module)).or_default();
            module.built_in = true;
            module.take(key, value);
        }
    }
    for line in optional_lines(&directory.join("modules.alias"))? {
        let mut words = line.split_whitespace();
        if let (Some("alias"), Some(pattern), Some(module)) = (words.next(), words.next(), words.next()) {
            modules.entry(kernel_name(module)).or_default().aliases.insert(pattern.to_owned());
        }
    }
    Ok(modules)
}

/// What the module in the file `path` says.
///
/// # Errors
/// Reading fails; [`ErrorKind::InvalidData`] if it is no 64-bit ELF file.
pub fn read_file(path: &Path) -> io::Result<ModuleInfo> {
    read(&fs::read(path)?)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{}: {error}", path.display())))
}

/// The file of each module below `directory`, by the names that the kernel has for them; packed ones too.
///
/// # Errors
/// Reading a directory fails.
pub fn paths(directory: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    Ok(files(directory)?.into_iter().map(|path| (name_of(&path), path)).collect())
}

/// True if the file of a module is not packed.
#[must_use]
pub fn is_plain(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "ko")
}

/// The name that the kernel has for the module of a file such as `virtio-net.ko.xz`.
#[must_use]
pub fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    kernel_name(name.split(".ko").next().unwrap_or_default())
}

/// The name that the kernel has for a module, in which `-` and `_` are the same for users.
#[must_use]
pub fn kernel_name(name: &str) -> String {
    name.replace('-', "_")
}

/// True if `path` is that of a module's file, packed or not.
#[must_use]
pub fn is_module(path: &str) -> bool {
    [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().any(|end| path.ends_with(end))
}

/// Whether the device with this `modalias` is one of those that `pattern` means, as fnmatch(3) without flags says: modprobe(8) asks
/// that. `*`, `?`, sets in brackets, and `\` before a character that means itself.
#[must_use]
pub fn matches(pattern: &str, modalias: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), modalias.as_bytes());
    let (mut at, mut place) = (0, 0);
    // Where to go on if what follows the last `*` does not match: one byte further in the text.
    let mut star = None;
    while place < text.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, place));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => match set(&pattern[at..], text[place]) {
                Some((length, inside)) => inside.then_some(length),
                None => (text[place] == b'[').then_some(1),
            },
            Some(b'\\') if at + 1 < pattern.len() => (pattern[at + 1] == text[place]).then_some(2),
            Some(byte) => (*byte == text[place]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                place += 1;
            }
            (None, Some((behind, from))) => {
                at = behind;
                place = from + 1;
                star = Some((behind, place));
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The length of the set that `pattern` begins with, and whether it has `byte`; none without its end.
fn set(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let mut at = 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let (first, mut found) = (at, false);
    loop {
        match *pattern.get(at)? {
            // A bracket at the beginning is one of the set.
            b']' if at > first => return Some((at + 1, found != negated)),
            low => {
                let range = pattern.get(at + 1) == Some(&b'-');
                let high = pattern.get(at + 2).copied().filter(|high| range && *high != b']');
                found |= (low..=high.unwrap_or(low)).contains(&byte);
                at += if high.is_some() { 3 } else { 1 };
            }
        }
    }
}

impl ModuleInfo {
    fn take(&mut self, key: &str, value: &str) {
        match key {
            "alias" => drop(self.aliases.insert(value.to_owned())),
            "firmware" => drop(self.firmware.insert(value.to_owned())),
            _ => {}
        }
    }
}

/// What the module with these bytes says; one without a section `.modinfo` says nothing.
fn read(bytes: &[u8]) -> object::read::Result<ModuleInfo> {
    let mut info = ModuleInfo::default();
    for (key, value) in modinfo(bytes)?.into_iter().flatten() {
        info.take(key, value);
    }
    Ok(info)
}

/// The keys and values in the section `.modinfo` of the module with these bytes; none without the section.
fn modinfo(bytes: &[u8]) -> object::read::Result<Option<impl Iterator<Item = (&str, &str)>>> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let Some((_, section)) = sections.section_by_name(endian, b".modinfo") else { return Ok(None) };
    let data = section.data(endian, bytes)?;
    Ok(Some(records(data).filter_map(|record| record.split_once('='))))
}

/// The texts with a zero behind each that are UTF-8.
fn records(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.split(|byte| *byte == 0).filter_map(|record| std::str::from_utf8(record).ok())
}

/// The files of modules below `directory`, in the order of their names. No link is followed.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() && is_module(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn optional(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        bytes => bytes,
    }
}

fn optional_lines(path: &Path) -> io::Result<Vec<String>> {
    Ok(String::from_utf8_lossy(&optional(path)?).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use testing::kernel::{module, module_tree};

    #[test]
    fn modules_in_files_and_built_in_ones_say_what_they_drive_and_want() {
        let directory = tempfile::tempdir().unwrap();
        module_tree(directory.path());
        let modules = read_all(directory.path()).unwrap();
        let names: Vec<_> = modules.keys().map(String::as_str).collect();
        assert_eq!(names, ["ahci", "bnx2x", "megaraid_sas", "packed", "virtio_net"]);
        assert!(modules["ahci"].built_in && !modules["bnx2x"].built_in);
        assert!(modules["ahci"].aliases.contains("pci:v*d*sv*sd*bc01sc06i01*"));
        let firmware: Vec<_> = modules["bnx2x"].firmware.iter().map(String::as_str).collect();
        assert_eq!(firmware, ["bnx2x/bnx2x-e2-7.13.15.0.fw", "bnx2x/bnx2x-e2-7.13.21.0.fw"]);
        assert!(modules["packed"].firmware.is_empty() && modules["packed"].aliases.contains("usb:vABCD*"));
        assert_eq!(read_all(&directory.path().join("nowhere")).unwrap(), BTreeMap::new());
        assert!(paths(directory.path()).unwrap()["virtio_net"].ends_with("kernel/virtio-net.ko"));
        let tables = read_tables(directory.path()).unwrap();
        assert!(tables["ahci"].built_in && tables["bnx2x"].firmware.is_empty());
    }

    #[test]
    fn a_driver_has_the_firmware_that_a_module_below_it_loads() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
        write("crc8.ko", &module(&[("license", "GPL")]));
        write("qed.ko", &module(&[("firmware", "qed/values.bin")]));
        write("qed-eth.ko", &module(&[("firmware", "own.bin")]));
        write("modules.dep", b"crc8.ko:\nqed.ko: crc8.ko\nqed-eth.ko: qed.ko crc8.ko\ngone.ko: qed.ko\n");
        let modules = read_all(directory.path()).unwrap();
        let firmware = |name: &str| modules[name].firmware.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(firmware("qed_eth"), ["own.bin", "qed/values.bin"]);
        assert_eq!(firmware("qed"), ["qed/values.bin"]);
        assert_eq!(firmware("crc8"), [""; 0]);
        assert!(!modules.contains_key("gone"));
        assert_eq!(dependencies(directory.path()).unwrap()["qed_eth"], ["qed", "crc8"]);
    }

    #[test]
    fn a_module_says_for_which_kernel_and_processor_it_is_and_whether_it_is_signed() {
        let plain =
            module(&[("vermagic", "6.12.1-amd64 SMP preempt mod_unload modversions "), ("version", "2.0")]);
        let found = header(&plain).unwrap();
        assert_eq!((found.kernel(), found.version.as_deref()), (Some("6.12.1-amd64"), Some("2.0")));
        assert_eq!((found.machine, found.license, found.signed), (62, None, false));
        assert!(header(&[&plain[..], SIGNATURE_END].concat()).unwrap().signed);
        assert_eq!(header(&module(&[("license", "GPL")])).unwrap().kernel(), None);
        for other in [&b"no module"[..], b"", &plain[..70]] {
            assert_eq!(header(other).unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn what_is_no_module_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("broken.ko");
        fs::write(&path, "no module").unwrap();
        assert_eq!(read_all(directory.path()).unwrap()["broken"], ModuleInfo::default());
        let error = read_file(&path).unwrap_err();
        assert!(error.to_string().contains("broken.ko"), "{error}");
    }

    #[test]
    fn patterns_match_as_those_of_modprobe_do() {
        let nic = "pci:v00008086d00001533sv000015D9sd00001533bc02sc00i00";
        for (pattern, text, expected) in [
            ("pci:v00008086d00001533sv*sd*bc*sc*i*", nic, true),
            ("pci:v00008086d00001534sv*sd*bc*sc*i*", nic, false),
            ("pci:v*d*sv*sd*bc02sc00i*", nic, true),
            ("pci:v00008086d0000153[1-4]sv*", nic, true),
            ("pci:v00008086d0000153[!1-4]sv*", nic, false),
            ("pci:v00008086d0000153[]3]sv*", nic, true),
            ("pci:v0000?086d*", nic, true),
            ("virtio:d00000001v*", "virtio:d00000001v00001AF4", true),
            ("acpi*:PNP0C0A:*", "acpi:PNP0C0A:", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("a[b", "a[b", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// The plain definition, which takes exponential time.
    fn plain(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => plain(&pattern[1..], text) || (!text.is_empty() && plain(pattern, &text[1..])),
            (Some(b'?'), Some(_)) => plain(&pattern[1..], &text[1..]),
            (Some(one), Some(other)) => one == other && plain(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn stars_and_question_marks_match_by_their_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), plain(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn no_pattern_makes_the_reader_panic(pattern in r"[\[\]!^\\*?a-c-]{0,12}", text in "[a-c\\[\\]]{0,12}") {
            let _ = matches(&pattern, &text);
        }

        #[test]
        fn every_text_matches_itself_with_its_special_characters_escaped(text in r"[\[\]*?\\a-c:]{0,12}") {
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert!(matches(&escaped, &text));
        }

        #[test]
        fn no_damage_makes_the_reader_of_modules_panic(at in 0_usize..400, byte: u8, length in 0_usize..400) {
            let mut bytes = module(&[("alias", "pci:*"), ("firmware", "a.fw")]);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = read(&bytes);
            bytes.truncate(length);
            let _ = read(&bytes);
        }
    }
}
