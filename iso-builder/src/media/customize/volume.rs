//! A volume that holds only configurations, for machines that boot an unchanged medium. The installer finds it by its
//! label (`install::sources::volume`).

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files::{self, UnfinishedFile};
use base::size::ByteSize;
use formats::fat::{self, FatFile, FatKind, FatVolume};
use medium::customization::Content;
use model::config::Secret;

/// The label of the volume; FAT allows 11 characters.
const VOLUME_LABEL: &str = "NQRUST-CONF";
/// The name of a configuration that is for every machine.
const ONLY_CONFIGURATION: &str = "install.yaml";
/// The smallest volume, which every firmware and every tool accepts.
const MIN_VOLUME: ByteSize = ByteSize::mib(2);
/// The times of the files, whenever the volume is made, in seconds since 1970: the earliest that FAT can express
/// (1980).
const FILE_TIME: u64 = 315_532_800;

/// Makes the image `output`, readable by its owner only; the same configurations make the same bytes.
pub fn make(content: &Content, output: &Path) -> Result<()> {
    let what = || format!("writing {}", output.display());
    let mut image = UnfinishedFile::begin(output).map_err(|error| files::unusable(output, error))?;
    write(content, image.file_mut()).class(Class::DiskIo, what)?;
    image.place(0o600).class(Class::DiskIo, what)
}

/// The same image as a file without a name.
pub fn image(content: &Content) -> Result<std::fs::File> {
    let what = || "making the image of the volume".to_owned();
    let mut image = tempfile::tempfile().class(Class::DiskIo, what)?;
    write(content, &mut image).class(Class::DiskIo, what)?;
    Ok(image)
}

fn write(content: &Content, image: &mut std::fs::File) -> Result<()> {
    let files = files(content);
    // For each file the rest of its last cluster and its directory entry; and room for the file system itself.
    let bytes: u64 = files.iter().map(|(_, text)| text.expose().len() as u64 + 8192).sum();
    let size = (ByteSize::bytes(bytes) + ByteSize::mib(1)).align_up(1 << 20).max(MIN_VOLUME);
    image.set_len(size.get())?;
    let all: Vec<u8> =
        files.iter().flat_map(|(path, text)| [path.as_bytes(), text.expose().as_bytes()].concat()).collect();
    let id = u32::from_le_bytes(Digest::of(&all).first_bytes());
    let volume = FatVolume { label: VOLUME_LABEL, id, sector: 512, epoch: FILE_TIME, kind: FatKind::BySize };
    let files =
        files.iter().map(|(path, text)| FatFile::new(path.as_str(), text.expose().as_bytes())).collect();
    fat::write_volume(image, volume, files)?;
    image.seek(SeekFrom::Start(0))?;
    image.flush()?;
    Ok(())
}

/// The files of the volume: a single one if every machine gets the same.
fn files(content: &Content) -> Vec<(String, &Secret)> {
    let mut nodes = content.nodes.iter();
    match (nodes.next(), nodes.next()) {
        (Some((name, text)), None) if name == "default.yaml" => vec![(ONLY_CONFIGURATION.to_owned(), text)],
        _ => content.nodes.iter().map(|(name, text)| (format!("nodes/{name}"), text)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};
    use std::os::unix::fs::PermissionsExt;

    fn content(names: &[&str]) -> Content {
        let nodes = names.iter().map(|name| ((*name).to_owned(), Secret::new(format!("# {name}\n"))));
        Content { nodes: nodes.collect(), ..Content::default() }
    }

    /// The output of an mtools program about the image.
    fn mtools(program: &str, image: &Path, rest: &[&str]) -> String {
        let invocation = Invocation::new(program).arg("-i").arg(image).args(rest.iter().copied());
        String::from_utf8(SystemRunner.run(&invocation).unwrap()).unwrap()
    }

    #[test]
    fn other_programs_read_the_volume_and_only_its_owner_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.img");
        for (names, file) in [
            (&["default.yaml"][..], "::/install.yaml"),
            (&["default.yaml", "mac-52-54-00-12-34-56.yaml"], "::/nodes/mac-52-54-00-12-34-56.yaml"),
            (&["serial-A%20B.yaml"], "::/nodes/serial-A%20B.yaml"),
        ] {
            let content = content(names);
            make(&content, &path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert!(mtools("mtype", &path, &[file]).starts_with("# "), "{file}");
            assert!(mtools("mlabel", &path, &["-s", "::"]).contains(VOLUME_LABEL));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            make(&content, &path).unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes, "the same bytes");
        }
    }

    #[test]
    fn many_configurations_fit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.img");
        let name = |n: u32| format!("mac-52-54-00-12-{:02x}-{:02x}.yaml", n / 256, n % 256);
        let nodes = (0..300).map(|n| (name(n), Secret::new("#".repeat(9000))));
        make(&Content { nodes: nodes.collect(), ..Content::default() }, &path).unwrap();
        let listed = mtools("mdir", &path, &["-b", "::/nodes"]);
        assert_eq!(listed.lines().filter(|line| line.ends_with(".yaml")).count(), 300, "{listed}");
    }
}
