//! ISOs as the builder writes them, changed in every place, also in the ways of an attacker who wants to get into a
//! machine: `verify` finds each change and names the part that was changed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{class_of, render};
use base::progress::Progress;
use formats::iso9660::write::{HybridVolume, RegionOwner};
use medium::customization::{Content, FILE, area, argument};
use medium::iso::IsoMap;
use medium::reader::MediumReader;
use model::boot::parameter;
use model::config::Secret;
use model::release::{MANIFEST, MediumKind};
use proptest::prelude::*;
use testing::medium::SampleMedium;

use super::built_iso::build;
use super::verify::{VerifyCoverage, VerifyReport, verify};
use crate::media::customize::CustomizationLocation;
use crate::media::customize::change::{self, AreaContents};
use trust::TrustStore;

struct TamperedIso {
    sample: SampleMedium,
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    /// Every run of bytes: its owner, its offset, its length.
    regions: Vec<(RegionOwner, usize, usize)>,
}

impl TamperedIso {
    fn new(kind: MediumKind) -> Self {
        Self::of(SampleMedium::new(kind))
    }

    fn of(sample: SampleMedium) -> Self {
        let (sample, path) = build(sample);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let manifest = sample.release.to_bytes();
        let map = IsoMap::of(&sample.release, &manifest).unwrap().unwrap();
        assert_eq!(map.size, bytes.len() as u64);
        let region =
            |(owner, at, length): (&RegionOwner, u64, u64)| (owner.clone(), at as usize, length as usize);
        let regions = map.regions().map(region).collect();
        Self { sample, path, file, bytes, regions }
    }

    fn owner(&self, offset: usize) -> &RegionOwner {
        let holds = |at: usize, length| (at..at + length).contains(&offset);
        &self.regions.iter().find(|(_, at, length)| holds(*at, *length)).unwrap().0
    }

    fn region(&self, owner: &RegionOwner) -> std::ops::Range<usize> {
        let (_, at, length) = self.regions.iter().find(|(known, ..)| known == owner).unwrap();
        *at..at + length
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset as u64).unwrap();
    }

    /// The result of `verify` while the bytes at `offset` are `bytes`.
    fn with(&self, offset: usize, bytes: &[u8]) -> VerifyOutcome {
        self.write(offset, bytes);
        let outcome = VerifyOutcome::of(&self.path);
        self.write(offset, &self.bytes[offset..offset + bytes.len()]);
        outcome
    }

    fn find(&self, text: &str) -> usize {
        self.bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
    }

    /// Changes one bit in every window of `step` bytes of the owners that `wanted` accepts, one at a time; `verify` has
    /// to name the owner each time. Returns the number of changes.
    fn change_every(&self, step: usize, wanted: impl Fn(&RegionOwner) -> bool) -> usize {
        let (mut count, mut random) = (0, 0x2545_F491_4F6C_DD1D_u64);
        for (owner, start, length) in self.regions.iter().filter(|(owner, ..)| wanted(owner)) {
            for window in (0..*length).step_by(step) {
                // A xorshift generator: places and values differ from window to window, and are the same in every run.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = start + window + random as usize % step.min(length - window);
                let bit = 1 << (random >> 61);
                self.with(at, &[self.bytes[at] ^ bit]).assert_names(owner, at);
                count += 1;
            }
        }
        count
    }
}

struct VerifyOutcome(Result<VerifyReport>);

impl VerifyOutcome {
    fn of(path: &Path) -> Self {
        let medium = MediumReader::open_for_verification(path);
        Self(medium.and_then(|medium| verify(&medium, &TrustStore::absent(), &Progress::silent())))
    }

    fn paths(&self) -> Vec<String> {
        let report = self.0.as_ref().unwrap();
        report.findings.iter().map(|finding| finding.path.clone()).collect()
    }

    /// The exit code is that of a failed verification, and the first part that the message names is `owner`.
    fn assert_names(self, owner: &RegionOwner, at: usize) {
        let manifest = *owner == RegionOwner::File(MANIFEST.to_owned());
        let first = self.0.as_ref().ok().and_then(|report| report.findings.first()).map(ToString::to_string);
        let error = self.0.and_then(VerifyReport::into_result).unwrap_err();
        assert_eq!(class_of(&error).exit_code(), 4, "{owner} at {at}: {}", render(&error));
        let text = first.unwrap_or_else(|| render(&error));
        // A manifest that is no longer readable, or names another recipe, is an error or a fault of the menu that names
        // it.
        let named = if manifest { text.contains(MANIFEST) } else { text.starts_with(&format!("{owner}: ")) };
        assert!(named, "byte {at} of {owner}: {text}");
    }
}

/// Owners of many bytes, all of which are checked in the same way.
fn is_bulk(owner: &RegionOwner) -> bool {
    match owner {
        RegionOwner::Esp | RegionOwner::Padding(_) => true,
        RegionOwner::File(path) => path == FILE || path.ends_with(".squashfs"),
        _ => false,
    }
}

#[test]
fn the_boot_menu_of_a_medium_with_a_password_is_shut_and_nobody_opens_it_unseen() {
    let built = TamperedIso::of(SampleMedium::new(MediumKind::Full).with_boot_password());
    let report = VerifyOutcome::of(&built.path).0.unwrap();
    assert_eq!((report.findings.len(), report.coverage), (0, VerifyCoverage::Whole), "{report}");
    assert!(!String::from_utf8_lossy(&built.sample.release.to_bytes()).contains("grub.pbkdf2"));
    let (menu, password) = ("boot/grub/grub.cfg", "boot/grub/password.cfg");
    for (line, instead, owner) in [
        ("set superusers=", "#et superusers=", menu),
        ("source /boot/grub/password.cfg", "source /boot/grub/passw0rd.cfg", menu),
        ("password_pbkdf2 root", "password_pbkdf2 toor", password),
        ("grub.pbkdf2.sha512.10000.AB", "grub.pbkdf2.sha512.10000.BA", password),
    ] {
        let found = built.with(built.find(line), instead.as_bytes());
        assert_eq!(found.paths(), [owner], "{instead}");
    }
}

#[test]
fn an_iso_as_it_was_built_is_compared_whole_and_good_also_on_a_longer_stick() {
    for kind in [MediumKind::Full, MediumKind::NetInstall] {
        let built = TamperedIso::new(kind);
        built.write(built.bytes.len(), &[0xAA; 70_000]);
        let report = VerifyOutcome::of(&built.path).0.unwrap();
        assert_eq!((report.findings.len(), report.coverage), (0, VerifyCoverage::Whole), "{report}");
        assert!(report.to_string().ends_with("and every other byte is what iso-builder writes"), "{report}");
    }
}

#[test]
fn a_byte_changed_in_any_structure_or_file_is_found_and_named() {
    let built = TamperedIso::new(MediumKind::Full);
    let count = built.change_every(64, |owner| !is_bulk(owner));
    assert!(count > 1000, "{count}");
}

#[test]
fn a_byte_changed_in_padding_the_esp_image_or_the_area_is_found_and_named() {
    let built = TamperedIso::new(MediumKind::NetInstall);
    let count = built.change_every(16 << 10, is_bulk);
    assert!(count > 1000, "{count}");
}

#[test]
fn a_shell_on_the_kernel_command_line_of_the_boot_menu_is_found() {
    let built = TamperedIso::new(MediumKind::Full);
    for (text, changed) in [
        ("rd.shell=0", "rd.shell=1"),
        ("search --no-floppy", "insmod --no-floppy"),
        ("source /boot/grub/custom.cfg", "source /boot/grub/custom.img"),
    ] {
        let at = built.find(text);
        assert_eq!(*built.owner(at), RegionOwner::File("boot/grub/grub.cfg".into()), "{text}");
        assert_eq!(built.with(at, changed.as_bytes()).paths(), ["boot/grub/grub.cfg"], "{text}");
    }
}

#[test]
fn a_second_release_on_a_kernel_line_is_found() {
    let built = TamperedIso::new(MediumKind::Full);
    let other = format!("linux /boot/vmlinuz {}={} ", parameter::RELEASE, Digest::of(b"another").oci());
    let at = built.find("menuentry \"Boot from local disk\"");
    assert_eq!(built.with(at, other.as_bytes()).paths(), ["boot/grub/grub.cfg"]);
}

#[test]
fn a_loader_or_a_script_changed_in_the_esp_image_is_found() {
    let built = TamperedIso::new(MediumKind::Full);
    let esp = built.region(&RegionOwner::Esp).start;
    let stub = esp + built.bytes[esp..].windows(7).position(|window| window == b"search ").unwrap();
    assert_eq!(built.with(stub, b"insmod ").paths(), ["EFI system partition"]);
    let shim = fs::read(built.sample.tree().join("boot/loaders/shimx64.efi")).unwrap();
    let shim = esp + built.bytes[esp..].windows(300).position(|window| window == &shim[..300]).unwrap();
    assert_eq!(built.with(shim + 5, b"MZ").paths(), ["EFI system partition"]);
}

#[test]
fn a_directory_entry_that_points_elsewhere_is_found_in_each_of_the_two_trees() {
    let built = TamperedIso::new(MediumKind::Full);
    let live = |volume| RegionOwner::Directory(volume, "live".into());
    for volume in [HybridVolume::Device, HybridVolume::Partition] {
        let place = built.region(&live(volume));
        let name = built.bytes[place.clone()].windows(7).position(|window| window == b"VMLINUZ").unwrap();
        // A directory record has the first block 2 bytes after its beginning, the name 33 bytes after it.
        let at = place.start + name - 33 + 2;
        let other = 17_u32;
        let address = [other.to_le_bytes(), other.to_be_bytes()].concat();
        assert_eq!(built.with(at, &address).paths(), [live(volume).to_string()]);
    }
}

#[test]
fn a_hidden_file_in_the_padding_is_found() {
    let built = TamperedIso::new(MediumKind::Full);
    let (owner, at, _) = built
        .regions
        .iter()
        .filter(|(owner, ..)| matches!(owner, RegionOwner::Padding(_)))
        .max_by_key(|(_, _, length)| *length)
        .unwrap();
    assert_eq!(built.with(at + 100, b"#!/bin/sh").paths(), [owner.to_string()]);
}

#[test]
fn a_manifest_that_was_changed_together_with_the_digest_in_the_menu_is_found() {
    let built = TamperedIso::new(MediumKind::Full);
    let old = built.sample.release.to_bytes();
    let mut release = built.sample.release.clone();
    release.epoch += 1;
    let new = release.to_bytes();
    assert_eq!(old.len(), new.len());
    let at = built.find(std::str::from_utf8(&old).unwrap());
    built.write(at, &new);
    assert_eq!(VerifyOutcome::of(&built.path).paths(), [MANIFEST], "only the manifest itself");
    let [old, new] = [&old, &new].map(|manifest| Digest::of(manifest));
    let bytes = fs::read(&built.path).unwrap();
    for (text, changed) in
        [(old.to_string(), new.to_string()), (old.to_string()[..16].into(), new.to_string()[..16].into())]
    {
        let places = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text.as_bytes());
        places.for_each(|(at, _)| built.write(at, changed.as_bytes()));
    }
    let paths = VerifyOutcome::of(&built.path).paths();
    for part in ["GUID partition table", "volume descriptors", "EFI system partition"] {
        assert!(paths.iter().any(|path| path == part), "{part} in {paths:?}");
    }
    assert!(!paths.iter().any(|path| path == "boot/grub/grub.cfg"), "the menu fits the manifest: {paths:?}");
}

#[test]
fn an_iso_of_an_older_builder_is_checked_by_its_payloads_and_says_so() {
    let sample = SampleMedium::new(MediumKind::Full);
    let report = VerifyOutcome::of(&sample.iso()).0.unwrap();
    assert_eq!((report.findings.len(), report.coverage), (0, VerifyCoverage::PayloadsOnly));
    let text = report.to_string();
    assert!(text.contains("warning: another version of iso-builder made this ISO"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn random_changes_are_all_found(seeds in proptest::collection::vec((any::<u64>(), 1_u8..=255), 250)) {
        let built = TamperedIso::new(MediumKind::NetInstall);
        for (seed, flip) in seeds {
            let at = usize::try_from(seed % built.bytes.len() as u64).unwrap();
            built.with(at, &[built.bytes[at] ^ flip]).assert_names(built.owner(at), at);
        }
    }

    #[test]
    fn a_customized_iso_is_whole_and_good_and_so_is_one_that_was_reset(
        texts in proptest::collection::vec("[a-z ]{0,3000}", 0..4),
        words in proptest::collection::vec("[a-z0-9]{1,8}(=[a-z0-9.,/]{0,20})?", 0..5),
    ) {
        let built = TamperedIso::new(MediumKind::Full);
        let node = |(number, text)| (format!("mac-52-54-00-00-00-0{number}.yaml"), Secret::new(text));
        let arguments = words.iter().filter_map(|word| word.parse().ok()).collect();
        let nodes = texts.into_iter().enumerate().map(node).collect();
        let content = Content { nodes, arguments, ..Content::default() };
        for content in [content, Content::default()] {
            let grub = argument::grub(&content.arguments, content.boot_password.as_ref()).unwrap();
            let wanted = AreaContents { area: area::bytes(&content).unwrap(), grub };
            let place = CustomizationLocation::find(&MediumReader::open(&built.path).unwrap()).unwrap();
            change::apply(&built.file, &place, &wanted).unwrap();
            let report = VerifyOutcome::of(&built.path).0.unwrap();
            prop_assert!(report.findings.is_empty() && report.coverage == VerifyCoverage::Whole, "{report}");
        }
        prop_assert!(fs::read(&built.path).unwrap() == built.bytes);
    }
}
