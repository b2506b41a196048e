//! The paths of a base that is an archive or an image, read without unpacking its files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use base::failure::{Class, Classify};

use crate::archive::{ArchiveMembers, Compression};
use crate::definition::{LoadedDefinition, OciBase};
use crate::steps::layers_of_layout;

/// The prefix of files by which a layer removes others (image-spec 1.1, `layer.md`): the file of the rest of the name, or with [`OPAQUE`] all that
/// lower layers have in the directory.
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// The paths of an archive; none if it is compressed in a way that only a build undoes.
pub(super) fn of_archive(archive: &Path) -> Result<Option<BTreeSet<PathBuf>>> {
    let mut paths = BTreeSet::new();
    let listed = each_path(archive, &mut |path| paths.extend([path]))?;
    Ok(listed.then_some(paths))
}

/// The paths of an image; none if a layer is compressed in a way that only a build undoes.
pub(super) fn of_layout(loaded: &LoadedDefinition, base: &OciBase) -> Result<Option<BTreeSet<PathBuf>>> {
    let scratch = tempfile::tempdir().context("making a scratch directory")?;
    let mut paths = BTreeSet::new();
    let (path, architecture) = (loaded.resolve(&base.path), loaded.definition.architecture);
    for layer in layers_of_layout(&path, base.reference.as_deref(), architecture, scratch.path())? {
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        let listed = each_path(&layer, &mut |path| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            match (name, name.strip_prefix(WHITEOUT)) {
                (OPAQUE, _) => gone.push(path.parent().unwrap_or(&path).to_owned()),
                (_, Some(name)) => gone.push(path.with_file_name(name)),
                _ => new.push(path),
            }
        })?;
        if !listed {
            return Ok(None);
        }
        paths.retain(|path: &PathBuf| !gone.iter().any(|gone| path.starts_with(gone)));
        paths.extend(new);
    }
    Ok(Some(paths))
}

/// Visits the path of every member, relative to the root; false if the archive's compression is not read here.
fn each_path(archive: &Path, visit: &mut dyn FnMut(PathBuf)) -> Result<bool> {
    let reading = || format!("reading {}", archive.display());
    let mut file = BufReader::new(File::open(archive).class(Class::Invalid, reading)?);
    let head = file.fill_buf().class(Class::Invalid, reading)?;
    let Ok(compression) = Compression::of(head) else { return Ok(false) };
    let plain = compression.undo(file).class(Class::Invalid, reading)?;
    let mut members = ArchiveMembers::new(plain);
    while let Some(member) = members.advance().class(Class::Invalid, reading)? {
        let path = Path::new(OsStr::from_bytes(&member.path));
        let named = path.components().filter(|part| matches!(part, Component::Normal(_)));
        visit(named.collect());
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base::digest::Digest;
    use serde_json::{Value, json};

    use super::*;

    fn archive(names: &[&str]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, &b""[..]).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn paths(names: &[&str]) -> Option<BTreeSet<PathBuf>> {
        Some(names.iter().map(PathBuf::from).collect())
    }

    #[test]
    fn an_archive_is_listed_whether_it_is_plain_or_compressed_and_xz_is_left_to_a_build() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("base.tar");
        let plain = archive(&["./usr/bin/curl", "etc/issue"]);
        let packed = zstd::encode_all(&plain[..], 1).unwrap();
        for bytes in [&plain, &packed] {
            fs::write(&file, bytes).unwrap();
            assert_eq!(of_archive(&file).unwrap(), paths(&["usr/bin/curl", "etc/issue"]));
        }
        fs::write(&file, b"\xfd7zXZ\0...").unwrap();
        assert_eq!(of_archive(&file).unwrap(), None);
    }

    #[test]
    fn what_a_layer_takes_away_is_not_a_file_of_the_image() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = directory.path().join("layout/blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let blob = |kind: &str, bytes: &[u8]| -> Value {
            fs::write(blobs.join(Digest::of(bytes).to_string()), bytes).unwrap();
            json!({ "mediaType": kind, "digest": Digest::of(bytes).oci(), "size": bytes.len() })
        };
        let layers = [
            archive(&["usr/a", "usr/b", "opt/x/one", "opt/x/two"]),
            archive(&["usr/.wh.a", "opt/x/.wh..wh..opq", "opt/x/three"]),
        ];
        let layers = layers.map(|bytes| blob("application/vnd.oci.image.layer.v1.tar", &bytes));
        let config = json!({ "architecture": "amd64", "os": "linux" }).to_string();
        let config = blob("application/vnd.oci.image.config.v1+json", config.as_bytes());
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers });
        let manifest = blob(kind, manifest.to_string().as_bytes());
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        fs::write(directory.path().join("layout/index.json"), index.to_string()).unwrap();
        let text = "{id: a, name: A, version: '1', base: {oci: {path: layout}}}";
        fs::write(directory.path().join("image.yaml"), text).unwrap();
        let loaded = LoadedDefinition::read(&directory.path().join("image.yaml")).unwrap();
        let base = OciBase { path: "layout".into(), reference: None };
        assert_eq!(of_layout(&loaded, &base).unwrap(), paths(&["usr/b", "opt/x/three"]));
    }
}
