//! ISOs that the builder itself writes, for tests.

use std::fs;
use std::path::PathBuf;

use base::digest::Digest;
use base::progress::Progress;
use formats::verity::VerityTree;
use medium::iso::Recipe;
use model::release::{Payload, Purpose};
use testing::medium::SampleMedium;

use crate::boot::loaders;
use crate::media::assemble::{assemble, iso_recipe};

/// The ISO that the builder writes, with loaders, boot code and room for customizing.
pub(crate) fn build(mut sample: SampleMedium) -> (SampleMedium, PathBuf) {
    let loaders = sample.directory.path().join("loaders");
    fs::create_dir_all(&loaders).unwrap();
    let pattern = |length: u32, step| (0..length).map(|n| (n % step) as u8).collect::<Vec<_>>();
    let architecture = sample.release.architecture;
    if architecture.has_bios() {
        fs::write(loaders.join(loaders::ELTORITO), pattern(5000, 241)).unwrap();
        fs::write(loaders.join(loaders::HYBRID), pattern(512, 239)).unwrap();
    }
    for (name, purpose) in loaders::payloads(architecture) {
        let length = match purpose {
            Purpose::Shim => 9000,
            Purpose::GrubEfi => 20_001,
            Purpose::MokManager => 700,
            _ => continue,
        };
        let (path, content) = (format!("boot/loaders/{name}"), pattern(length, 251));
        let file = sample.tree().join(&path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, &content).unwrap();
        let (size, sha256) = (u64::from(length), Digest::of(&content));
        sample.release.payloads.push(Payload { path, purpose, size, sha256 });
    }
    let image = sample.release.payload(Purpose::Rootfs).unwrap();
    let file = fs::File::open(sample.tree().join(&image.path)).unwrap();
    let tree = VerityTree::of_image(image.sha256, file).unwrap();
    sample.release.iso = Some(iso_recipe(architecture, &loaders, tree.root, None).unwrap());
    let manifest = sample.release.to_bytes();
    let source = |payload: &Payload| Ok(sample.tree().join(&payload.path));
    let scratch = tempfile::tempdir().unwrap();
    let iso =
        assemble(&Recipe::new(&sample.release, &manifest), None, &loaders, &source, scratch.path()).unwrap();
    let path = sample.directory.path().join("built.iso");
    iso.write(&path, &path, "iso", &Progress::silent()).unwrap();
    (sample, path)
}
