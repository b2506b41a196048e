//! The parts of a medium: payloads, boot code, and the small files that its recipe makes.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use formats::iso9660::write::grub;
use formats::verity::VerityTree;
use medium::customization::{area, argument};
use medium::iso::esp;
use medium::iso::recipe::{self, FileContent, Recipe, RootfsTree};
use medium::signatures;
use model::architecture::Architecture;
use model::release::{BiosBootCode, IsoRecipe, Payload};

use super::iso::{BiosBootFiles, IsoParts};
use crate::boot::loaders;

/// The recipe of ISOs of an architecture with the boot code in `loaders` that is no payload, and an OS image whose hash tree has the
/// root `root_hash`; `hardware` is the payload that says what the release can drive.
pub(crate) fn iso_recipe(
    architecture: Architecture,
    loaders: &Path,
    root_hash: Digest,
    hardware: Option<Payload>,
) -> Result<IsoRecipe> {
    let bios = architecture.has_bios().then(|| bios_boot_code(loaders)).transpose()?;
    let recipe = recipe::number(hardware.is_some());
    Ok(IsoRecipe { recipe, bios, rootfs_root_hash: Some(root_hash), hardware })
}

fn bios_boot_code(loaders: &Path) -> Result<BiosBootCode> {
    let read = |name: &str| {
        let path = loaders.join(name);
        fs::read(&path).with_context(|| format!("reading {}", path.display()))
    };
    let (eltorito, hybrid) = (read(loaders::ELTORITO)?, read(loaders::HYBRID)?);
    Ok(BiosBootCode {
        eltorito_size: eltorito.len() as u64,
        eltorito_sha256: grub::eltorito_digest(&eltorito)?,
        boot_sector_sha256: grub::boot_sector_digest(&hybrid)?,
    })
}

/// The ISO that follows from `recipe`, with these signatures of its manifest, the loaders of a directory and the files that
/// `source` has for payloads. Files that are neither are written into `scratch`.
pub(crate) fn assemble(
    recipe: &Recipe<'_>,
    signatures: Option<&[u8]>,
    loaders: &Path,
    source: &dyn Fn(&Payload) -> Result<PathBuf>,
    scratch: &Path,
) -> Result<IsoParts> {
    let small = |name: &str, bytes: &[u8]| -> Result<PathBuf> {
        let path = scratch.join(name);
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    };
    let mut files = Vec::new();
    for (number, (path, content)) in recipe.files().into_iter().enumerate() {
        let file = match content {
            FileContent::Bytes(bytes) => small(&format!("file-{number}"), &bytes)?,
            FileContent::Signatures => small("signatures", &signatures::padded(signatures)?)?,
            FileContent::Arguments => small("custom.cfg", &argument::grub(&[], None)?)?,
            FileContent::Area => blank_area(&scratch.join("custom.img"))?,
            FileContent::Tree(tree) => small("tree", &hash_tree(&tree, &source(tree.image)?)?)?,
            FileContent::Payload(payload) => source(payload)?,
        };
        files.push((path, file));
    }
    let mut contents = Vec::new();
    for payload in recipe.loaders()? {
        let path = source(payload)?;
        contents.push(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    let [shim, grub, mok] = &contents[..] else {
        anyhow::bail!("the release does not have three boot loaders")
    };
    let menu = recipe.menu();
    let image = esp::image(&menu, recipe.release.epoch, [shim, grub, mok])?;
    Ok(IsoParts {
        volume: menu.volume,
        guid: recipe.guid(),
        epoch: recipe.release.epoch,
        files,
        bios: recipe.release.architecture.has_bios().then(|| BiosBootFiles {
            eltorito: loaders.join(loaders::ELTORITO),
            hybrid: loaders.join(loaders::HYBRID),
        }),
        esp: small("esp.img", &image)?,
    })
}

/// The hash tree over the OS image in the file `image`.
fn hash_tree(wanted: &RootfsTree<'_>, image: &Path) -> Result<Vec<u8>> {
    let what = || format!("making the hash tree of {}", image.display());
    let file = File::open(image).with_context(what)?;
    let tree = VerityTree::of_image(wanted.image.sha256, file).with_context(what)?;
    ensure!(tree.root == wanted.root_hash, "{} is not the OS image of the release manifest", image.display());
    Ok(tree.bytes)
}

/// Makes the empty customization area of a new medium: zeros, without blocks on the disk (sparse).
pub(crate) fn blank_area(path: &Path) -> Result<PathBuf> {
    let what = || format!("writing {}", path.display());
    let file = File::options().write(true).create(true).truncate(true).open(path).with_context(what)?;
    file.set_len(area::LENGTH).with_context(what)?;
    // An earlier file of this name may have been readable by its owner only.
    file.set_permissions(fs::Permissions::from_mode(0o644)).with_context(what)?;
    Ok(path.to_owned())
}
