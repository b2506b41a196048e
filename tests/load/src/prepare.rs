//! A medium and configurations for virtual machines. The medium's large files are sparse: only their first bytes are on the
//! disk, and the rest is read as zeros.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::size::ByteSize;
use model::machine::Selector;
use model::release::{Image, MANIFEST, Payload, Purpose, Release};

use crate::virtual_machine::VirtualMachine;

/// The sizes of a medium's files.
#[derive(Clone, Copy, Debug)]
pub struct MediumSizes {
    pub kernel: ByteSize,
    pub initrd: ByteSize,
    pub os_image: ByteSize,
    pub blobs: u32,
    /// Of each blob.
    pub blob: ByteSize,
}

/// Writes a configuration for each of the machines `0..machines` into `directory`, which is made.
pub fn configurations(directory: &Path, machines: u32, cluster_size: u32) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    for number in 0..machines {
        let machine = VirtualMachine::new(number, cluster_size);
        let mac = machine.mac().context("a machine without the address of its card")?;
        let path = directory.join(format!("{}.yaml", Selector::Mac(mac).stem()));
        fs::write(&path, machine.configuration()).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Makes a medium that can be served in `directory`, which is made.
pub fn medium(directory: &Path, sizes: MediumSizes) -> Result<()> {
    let mut payloads = Vec::new();
    for (path, purpose, size) in [
        ("live/vmlinuz", Purpose::Kernel, sizes.kernel),
        ("live/initrd", Purpose::Initrd, sizes.initrd),
        ("live/rootfs.squashfs", Purpose::Rootfs, sizes.os_image),
    ] {
        let sha256 = sparse_file(directory, path, &format!("{purpose:?}"), size)?;
        payloads.push(Payload { path: path.into(), purpose, size: size.get(), sha256 });
    }
    let mut blobs = Vec::new();
    for number in 0..sizes.blobs {
        let made = sparse_file(directory, "blob", &format!("blob {number}"), sizes.blob)?;
        let path = format!("images/blobs/sha256/{made}");
        let target = directory.join(&path);
        fs::create_dir_all(base::files::parent(&target))?;
        fs::rename(directory.join("blob"), &target).context("naming a blob")?;
        payloads.push(Payload { path, purpose: Purpose::ImageBlob, size: sizes.blob.get(), sha256: made });
        blobs.push(made);
    }
    let images = blobs.iter().map(|digest| Image {
        name: format!("localhost/load/{digest}:1"),
        digest: *digest,
        roles: Vec::new(),
        blobs: vec![*digest],
        documents: 0,
    });
    let release = Release { images: images.collect(), ..testing::release::minimal("load", payloads) };
    fs::write(directory.join(MANIFEST), release.to_bytes()).context("writing the release manifest")
}

/// Makes a file of `size` bytes that begins with `text`; returns its digest.
fn sparse_file(directory: &Path, path: &str, text: &str, size: ByteSize) -> Result<Digest> {
    let path = directory.join(path);
    let what = || format!("making {}", path.display());
    fs::create_dir_all(base::files::parent(&path)).with_context(what)?;
    let mut file = File::create(&path).with_context(what)?;
    file.write_all(text.as_bytes()).with_context(what)?;
    file.set_len(size.get()).with_context(what)?;
    let written = &text.as_bytes()[..text.len().min(usize::try_from(size.get())?)];
    let zeros = std::io::repeat(0).take(size.get().saturating_sub(text.len() as u64));
    Ok(Digest::of_reader(written.chain(zeros)).with_context(what)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_of_a_medium_take_no_room_and_have_the_digests_of_its_manifest() {
        let directory = tempfile::tempdir().unwrap();
        let size = ByteSize::mib(8);
        let sizes =
            MediumSizes { kernel: ByteSize::bytes(3), initrd: size, os_image: size, blobs: 2, blob: size };
        medium(directory.path(), sizes).unwrap();
        let release = Release::parse(&fs::read(directory.path().join(MANIFEST)).unwrap()).unwrap();
        assert_eq!(release.payloads.len(), 5);
        for payload in &release.payloads {
            let path = directory.path().join(&payload.path);
            let (digest, length) = Digest::of_reader(File::open(&path).unwrap()).unwrap();
            assert_eq!((digest, length), (payload.sha256, payload.size), "{}", payload.path);
            assert!(fs::metadata(&path).unwrap().blocks() * 512 <= 64 << 10, "{}", payload.path);
        }
    }

    #[test]
    fn every_machine_has_a_configuration_with_the_name_of_its_card() {
        let directory = tempfile::tempdir().unwrap();
        configurations(directory.path(), 3, 2).unwrap();
        let text = fs::read_to_string(directory.path().join("mac-52-54-00-00-00-01.yaml")).unwrap();
        assert!(VirtualMachine::new(1, 2).is_its_configuration(&text), "{text}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }
}
