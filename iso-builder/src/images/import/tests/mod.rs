//! Imports of archives that real programs made, and of archives that no honest program makes.

mod docker;
mod forms;
mod hostile;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) use formats::oci::media_types::{OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST};
use serde_json::{Value, json};
use tar::EntryType;

use super::super::stored_image::StoredImage;
use super::*;
use model::config::Role;

pub(super) const NAME: &str = "localhost/test/a:1";

/// A directory for one test, with a store in it.
pub(super) struct Place {
    directory: tempfile::TempDir,
    pub(super) store: Store,
}

impl Place {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(&directory.path().join("store")).unwrap();
        Self { directory, store }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Runs a program here and returns what it printed.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(self.directory.path()).output();
        let output = output.unwrap_or_else(|error| panic!("this test needs {program}: {error}"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {told}");
        output.stdout
    }

    pub(super) fn skopeo(&self, arguments: &[&str]) -> Vec<u8> {
        self.run("skopeo", &[&["--insecure-policy"], arguments].concat())
    }

    /// `made`, a layout by umoci that has the image [`NAME`] with two gzip layers.
    pub(super) fn layout(&self) -> PathBuf {
        self.run("umoci", &["init", "--layout", "umoci"]);
        self.run("umoci", &["new", "--image", "umoci:1"]);
        for (name, length) in [("one", 300_000), ("two", 20)] {
            self.write(name, &noise(length));
            self.run("umoci", &["insert", "--rootless", "--image", "umoci:1", name, &format!("/{name}")]);
        }
        let config = ["config", "--image", "umoci:1", "--architecture", "amd64", "--os", "linux"];
        self.run("umoci", &config);
        self.skopeo(&["copy", "oci:umoci:1", &format!("oci:made:{NAME}")]);
        self.path("made")
    }

    pub(super) fn import(&self, path: &Path, references: &[&str]) -> Result<ImportedImages> {
        let references: Vec<_> = references.iter().map(|text| text.parse().unwrap()).collect();
        let import = ImageImport {
            path,
            references: &references,
            checksums: None,
            architecture: "amd64",
            roles: &[Role::Worker],
        };
        super::import(&import, &self.store, &mut |_| ())
    }

    /// The import of one image, all of whose blobs are then in the store.
    pub(super) fn image(&self, path: &Path) -> StoredImage {
        let imported = self.import(path, &[]).unwrap_or_else(|error| panic!("{error:#}"));
        let [image] = <[StoredImage; 1]>::try_from(imported.images).unwrap();
        image.blobs().for_each(|blob| self.store.check(blob).unwrap());
        image
    }

    pub(super) fn blob(&self, digest: Digest) -> Vec<u8> {
        fs::read(self.store.blob_path(digest)).unwrap()
    }

    /// Expects an import to fail with this class, a message that contains all of `words`, and nothing left but placed
    /// blobs.
    pub(super) fn refused(&self, path: &Path, references: &[&str], class: Class, words: &[&str]) {
        let error = self.import(path, references).unwrap_err();
        let told = base::failure::render(&error);
        assert_eq!(base::failure::class_of(&error), class, "{told}");
        let name = path.file_name().unwrap().to_str().unwrap();
        for word in words.iter().chain(&[name]) {
            assert!(told.contains(word), "{word:?} is not in {told}");
        }
        let blobs = fs::read_dir(self.store.root().join("blobs")).unwrap().count();
        assert_eq!(blobs, 1, "a temporary file stays");
    }
}

/// Bytes that do not compress, the same every time.
pub(super) fn noise(length: usize) -> Vec<u8> {
    testing::numbers::Numbers(1).bytes(length)
}

pub(super) enum Part<'a> {
    File(&'a [u8]),
    Symlink(&'a str),
    HardLink(&'a str),
}

/// A tar archive, with paths that normal programs do not write.
pub(super) fn tar_of(parts: &[(&str, Part<'_>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, part) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        let (kind, content, target) = match part {
            Part::File(content) => (EntryType::Regular, *content, ""),
            Part::Symlink(target) => (EntryType::Symlink, &b""[..], *target),
            Part::HardLink(target) => (EntryType::Link, &b""[..], *target),
        };
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_link_name_literal(target).unwrap();
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// The files of an OCI layout: paths and contents.
#[derive(Clone, Default)]
pub(super) struct Files(pub(super) Vec<(String, Vec<u8>)>);

impl Files {
    pub(super) fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        self.0.push((format!("blobs/sha256/{digest}"), bytes.to_vec()));
        json!({ "mediaType": media_type, "digest": digest.oci(), "size": bytes.len() })
    }

    pub(super) fn document(&mut self, media_type: &str, document: &Value) -> Value {
        self.blob(media_type, document.to_string().as_bytes())
    }

    pub(super) fn image(&mut self, architecture: &str, layer: &[u8]) -> Value {
        let rootfs = json!({ "type": "layers", "diff_ids": [Digest::of(layer).oci()] });
        let config = json!({ "architecture": architecture, "os": "linux", "rootfs": rootfs });
        let config = self.document(OCI_CONFIG, &config);
        let layers = [self.blob(OCI_LAYER, layer)];
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers });
        self.document(OCI_MANIFEST, &manifest)
    }

    pub(super) fn index(mut self, manifests: &[Value]) -> Self {
        let index = json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
        self.0.push(("index.json".into(), index.into()));
        self
    }

    pub(super) fn tar(&self) -> Vec<u8> {
        let parts: Vec<_> =
            self.0.iter().map(|(path, content)| (path.as_str(), Part::File(content))).collect();
        tar_of(&parts)
    }
}

pub(super) fn named(mut descriptor: Value, name: &str) -> Value {
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    descriptor
}

/// `descriptor` as an index has it for a platform.
pub(super) fn for_platform(mut descriptor: Value, architecture: &str) -> Value {
    descriptor["platform"] = json!({ "os": "linux", "architecture": architecture });
    descriptor
}

pub(super) fn read_file(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_checksum_is_found_by_the_name_of_the_archive() {
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    let text = format!("{one}  other.tar\n{two} *dist/images.tar.zst\n{two}  ./images.tar.zst\n");
    assert_eq!(checksum_of(&text, "images.tar.zst").unwrap().to_string(), two);
    assert!(checksum_of(&text, "images.tar").unwrap_err().contains("no checksum for images.tar"));
    assert!(checksum_of(&format!("{text}{one}  images.tar.zst"), "images.tar.zst").is_err());
    assert!(checksum_of("123  a.tar", "a.tar").is_err());
}
