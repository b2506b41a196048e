//! One build of a tree without a kernel, and layouts to build from.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base::digest::Digest;
use serde_json::{Value, json};

pub(crate) struct BuildOutcome {
    pub(crate) code: i32,
    pub(crate) told: String,
    base: Option<PathBuf>,
}

/// The time of the files of a build, in seconds since 1970.
#[derive(Clone, Copy)]
pub(crate) enum GivenTime {
    /// That of the newest file.
    None,
    /// By the key `epoch` of the definition.
    Definition(u64),
    /// By `SOURCE_DATE_EPOCH`.
    Environment(u64),
}

/// Builds from `base` with a cache in `directory`; the files have the time 1700000000.
pub(crate) fn build(directory: &Path, base: &Value) -> BuildOutcome {
    build_at(directory, base, GivenTime::Environment(1_700_000_000))
}

/// As [`build`], with files of another time.
pub(crate) fn build_at(directory: &Path, base: &Value, time: GivenTime) -> BuildOutcome {
    build_with(directory, base, time, &[])
}

/// As [`build_at`], with these options.
pub(crate) fn build_with(
    directory: &Path,
    base: &Value,
    time: GivenTime,
    options: &[&OsStr],
) -> BuildOutcome {
    let definition = directory.join("image.yaml");
    let mut text = json!({ "id": "test", "name": "Test", "version": "1", "base": base, "trust": { "unsigned": "allow" } });
    let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
    command.env_remove("SOURCE_DATE_EPOCH");
    match time {
        GivenTime::None => {}
        GivenTime::Definition(seconds) => text["epoch"] = seconds.into(),
        GivenTime::Environment(seconds) => drop(command.env("SOURCE_DATE_EPOCH", seconds.to_string())),
    }
    fs::write(&definition, text.to_string()).unwrap();
    let output = command
        .args(["build", "--progress", "plain", "--output"])
        .arg(directory.join("out"))
        .arg("--cache-dir")
        .arg(directory.join("cache"))
        .arg(&definition)
        .args(options)
        .env("NQRUST_INSTALLER", testing::elf::installer(directory))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    BuildOutcome {
        code: output.status.code().unwrap(),
        told,
        base: newest_base(&directory.join("cache/steps")),
    }
}

/// The base that was made last.
fn newest_base(steps: &Path) -> Option<PathBuf> {
    let steps = fs::read_dir(steps).into_iter().flatten().map(|entry| entry.unwrap().path().join("base.tar"));
    steps.filter(|base| base.is_file()).max_by_key(|base| fs::metadata(base).unwrap().modified().unwrap())
}

impl BuildOutcome {
    /// The base that was made; after it the build had to end for want of a kernel.
    pub(crate) fn base(self) -> PathBuf {
        assert!(
            self.code == 2 && self.told.contains("the base lacks what a node needs"),
            "{}: {}",
            self.code,
            self.told
        );
        self.base.unwrap()
    }

    /// No base was made, and the user is told all of `words`.
    pub(crate) fn refused(self, case: &str, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{case}: {}", self.told);
        for word in words.iter().chain(&["error: "]) {
            assert!(self.told.contains(word), "{case}: {word:?} is not in {}", self.told);
        }
        assert!(self.base.is_none(), "{case}: there is a base");
    }
}

pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An OCI layout under way.
pub(crate) struct Layout(pub(crate) PathBuf);

impl Layout {
    pub(crate) fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self(directory.to_owned())
    }

    pub(crate) fn blob_path(&self, digest: &str) -> PathBuf {
        self.0.join("blobs/sha256").join(digest.strip_prefix("sha256:").unwrap())
    }

    /// Keeps a blob and returns its descriptor.
    pub(crate) fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes).oci();
        fs::write(self.blob_path(&digest), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    /// Keeps a document and returns its descriptor.
    pub(crate) fn document(&self, media_type: &str, document: &Value) -> Value {
        self.blob(media_type, document.to_string().as_bytes())
    }

    pub(crate) fn image(&self, architecture: &str, layers: &[Value]) -> Value {
        let config = json!({ "architecture": architecture, "os": "linux" });
        let config = self.document("application/vnd.oci.image.config.v1+json", &config);
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
        self.document(MANIFEST, &manifest)
    }

    /// Writes `index.json` and returns the base that a definition would name.
    pub(crate) fn finish(&self, manifests: &[Value]) -> Value {
        let index = json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
        fs::write(self.0.join("index.json"), index).unwrap();
        json!({ "oci": { "path": self.0 } })
    }

    /// A whole layout of one image.
    pub(crate) fn of_layers(directory: &Path, layers: &[Vec<u8>]) -> Value {
        let layout = Self::new(directory);
        let layers: Vec<Value> = layers.iter().map(|layer| layout.blob(LAYER, layer)).collect();
        let image = layout.image("amd64", &layers);
        layout.finish(&[image])
    }
}

/// `descriptor` as an index has it for a platform.
pub(crate) fn for_platform(mut descriptor: Value, architecture: &str) -> Value {
    descriptor["platform"] = json!({ "os": "linux", "architecture": architecture });
    descriptor
}
