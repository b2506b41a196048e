//! An ISO in memory, made of its own map. That the writer of `iso-builder` writes the same is tested there, where every
//! byte of such an ISO is changed too.

use super::*;
use base::digest::Digest;
use model::release::Release;
use testing::iso::{arm64_release, find, image, release, release_with_hardware};

fn differences(release: &Release, image: &[u8], scope: CheckScope) -> Vec<String> {
    let manifest = release.to_bytes();
    let map = IsoMap::of(release, &manifest).unwrap().unwrap();
    let found = check(&image.to_vec(), &map, scope, &mut |_| Ok(())).unwrap();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn the_bytes_of_an_iso_change_only_with_the_number_of_the_recipe() {
    let image = image(&release());
    // Another digest here means that media which were built before would be called changed. Raise `recipe::NUMBER`, which is
    // in the manifest and thereby in this digest, and then write the new one down.
    // Those without hardware.json are as they were before there was one.
    assert_eq!(
        (recipe::WITHOUT_HARDWARE, Digest::of(&image).to_string().as_str()),
        (4, "d1c7884591243c07f2f0f1cb774c848db4c99c02bf21d6f57a0244f2ed182eb6"),
    );
}

#[test]
fn an_iso_with_hardware_json_has_a_recipe_of_its_own_and_every_byte_of_it_is_known() {
    let (release, bytes) = (release_with_hardware(), image(&release_with_hardware()));
    assert_eq!(
        (recipe::NUMBER, Digest::of(&bytes).to_string().as_str()),
        (5, "bf707e094692afef36e584aae1158f19391db4561f304adae0d5bdba6d23d828"),
    );
    assert_eq!(differences(&release, &bytes, CheckScope::Whole), [""; 0]);
    let mut changed = bytes.clone();
    changed[find(&bytes, r#""systemd":257"#)] ^= 1;
    let found = differences(&release, &changed, CheckScope::Whole);
    assert!(found.len() == 1 && found[0].starts_with("hardware.json: "), "{found:?}");
    // A manifest that says that an older recipe made such an ISO does not say how it was made.
    let mut older = release;
    older.iso.as_mut().unwrap().recipe = recipe::WITHOUT_HARDWARE;
    assert!(IsoMap::of(&older, &older.to_bytes()).unwrap().is_none());
}

#[test]
fn an_iso_for_arm64_starts_on_uefi_alone_and_every_byte_of_it_is_known() {
    let (release, bytes) = (arm64_release(), image(&arm64_release()));
    assert_eq!(
        Digest::of(&bytes).to_string(),
        "d9b12e3fbe4508b68f1490e5805caed5f5d2cc364c3af481d86b83a4ceb63a2c"
    );
    assert_eq!(differences(&release, &bytes, CheckScope::Whole), [""; 0]);
    // No boot code, no active entry; a boot catalog whose first entry is that of UEFI.
    assert!(bytes[..446].iter().all(|byte| *byte == 0) && bytes[462..510].iter().all(|byte| *byte == 0));
    let text = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(!text("eltorito.img") && text("chainloader /EFI/BOOT/BOOTAA64.EFI;"));
    for place in [0, 100, 445, 470, 509] {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        let found = differences(&release, &changed, CheckScope::Boot);
        assert!(found.len() == 1 && found[0].starts_with("boot sector: "), "{place}: {found:?}");
    }
}

#[test]
fn an_iso_as_it_was_built_has_no_difference_and_every_byte_is_read_once() {
    let (release, bytes) = (release(), image(&release()));
    let manifest = release.to_bytes();
    let map = IsoMap::of(&release, &manifest).unwrap().unwrap();
    let mut read = 0;
    let found = check(&bytes, &map, CheckScope::Whole, &mut |count| {
        read += count;
        Ok(())
    });
    assert_eq!((found.unwrap(), read), (vec![], map.size));
    let mut stick = bytes;
    stick.extend([0xAA; 5000]);
    assert_eq!(
        differences(&release, &stick, CheckScope::Whole),
        [""; 0],
        "what is behind the ISO is none of it"
    );
}

#[test]
fn before_an_install_payloads_are_left_to_their_readers_and_boot_parts_are_compared() {
    let (release, bytes) = (release(), image(&release()));
    let manifest = release.to_bytes();
    let map = IsoMap::of(&release, &manifest).unwrap().unwrap();
    for region in &map.regions {
        let mut changed = bytes.clone();
        changed[region.at.0 as usize + region.length as usize / 2] ^= 0x10;
        let found = differences(&release, &changed, CheckScope::Boot);
        let loader = map.loaders.iter().any(|(at, _)| *at == region.at);
        match region.is_of_installer() && !loader {
            true => assert_eq!(found, [""; 0], "{}", region.owner),
            false => assert_eq!(found.len(), 1, "{} {found:?}", region.owner),
        }
    }
}

#[test]
fn a_manifest_of_another_medium_is_named_itself_and_not_everything_else() {
    let other = Release { epoch: 1_800_000_000, ..release() };
    let found = differences(&other, &image(&release()), CheckScope::Whole);
    let [only] = &found[..] else { panic!("{found:?}") };
    assert!(only.starts_with("release.json: is not the manifest of this medium"), "{only}");
}

#[test]
fn an_image_that_is_cut_off_is_told_once_and_by_the_files_that_it_lacks() {
    let (release, bytes) = (release(), image(&release()));
    let found = differences(&release, &bytes[..find(&bytes, "menuentry") + 20], CheckScope::Whole);
    assert!(
        found[0].starts_with("the ISO: has ") && found[1].starts_with("boot/grub/grub.cfg: has "),
        "{found:?}"
    );
    assert!(found.iter().all(|line| !line.contains("padding")), "{found:?}");
}

#[test]
fn a_release_of_another_recipe_or_of_none_has_no_map() {
    let older = Release { iso: None, ..release() };
    let mut newer = release();
    newer.iso.as_mut().unwrap().recipe += 1;
    for release in [older, newer] {
        assert!(IsoMap::of(&release, &release.to_bytes()).unwrap().is_none());
    }
    let mut impossible = release();
    impossible.payloads[0].path = "a/very/deep/path/that/no/ISO/has/file".into();
    assert!(IsoMap::of(&impossible, &impossible.to_bytes()).is_err());
}

#[test]
fn signatures_of_any_text_are_no_difference_and_what_is_no_text_is_one_at_its_byte() {
    let (release, bytes) = (release(), image(&release()));
    let manifest = release.to_bytes();
    let map = IsoMap::of(&release, &manifest).unwrap().unwrap();
    let names: Vec<_> = map.recipe.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names[..2], ["release.json", "release.json.minisig"]);
    let region = map.regions.iter().find(|region| matches!(region.wanted, map::ExpectedBytes::Signatures));
    let (at, length) = region.map(|region| (region.at.0 as usize, region.length as usize)).unwrap();
    assert_eq!(length, 8192);
    let four_lines = "untrusted comment: signature from a key\nRWQ=\ntrusted comment: t\u{e4}st\t1\nAAA=\n";
    for (text, fault) in [
        (four_lines.to_owned(), None),
        (four_lines.repeat(3), None),
        ("x".repeat(8191) + "\n", None),
        ("x".repeat(8192), Some(8191)),
        ("a\0".to_owned(), Some(1)),
        ("a\r\n".to_owned(), Some(1)),
        (format!("{four_lines}\nhidden\n"), Some(four_lines.len() + 1)),
    ] {
        let mut changed = bytes.clone();
        changed[at..at + text.len()].copy_from_slice(text.as_bytes());
        let wanted: Vec<_> = fault
            .iter()
            .map(|fault| {
                let place = at + fault;
                format!(
                    "release.json.minisig: is not what the builder writes, from byte {place} of the medium on"
                )
            })
            .collect();
        for scope in [CheckScope::Whole, CheckScope::Boot] {
            assert_eq!(differences(&release, &changed, scope), wanted, "{text:?}");
        }
    }
    let mut latin = bytes;
    latin[at..at + 2].copy_from_slice(b"\xe4\n");
    assert_eq!(differences(&release, &latin, CheckScope::Whole).len(), 1);
}
