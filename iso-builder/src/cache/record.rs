//! The record of a finished step: its outputs, with what is needed to check that they are unchanged.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::files::digest_of_file;

/// The record beside a step's outputs.
pub(super) const RECORD_FILE: &str = ".step.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepRecord {
    /// Everything in the directory but the record, each directory before what is in it.
    pub(super) outputs: Vec<StepOutput>,
    /// The repository that the outputs come from, if another host made them. Files of it may not be here yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<String>,
}

/// An output of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepOutput {
    /// Relative to the directory of the step.
    pub(super) path: PathBuf,
    #[serde(flatten)]
    pub(super) content: OutputContent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub(super) enum OutputContent {
    Directory,
    Link { target: PathBuf },
    File(FileContent),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileContent {
    /// In bytes.
    pub(super) size: u64,
    pub(super) sha256: Digest,
    /// By its owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) executable: bool,
    /// When it was last written, since 1970; of a file that is not here, the time that it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<Duration>,
}

impl StepOutput {
    pub(super) fn file(&self) -> Option<&FileContent> {
        match &self.content {
            OutputContent::File(file) => Some(file),
            _ => None,
        }
    }
}

/// What a directory has of a step.
#[derive(Debug)]
pub(super) enum StepState {
    /// Nothing that can be used.
    Absent,
    /// Files that are still where the others came from are missing.
    Partial(StepRecord),
    Whole(StepRecord),
}

impl StepRecord {
    /// The record of the step in a directory, if it has a finished one.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(RECORD_FILE)).ok()?).ok()
    }

    /// Reads the record of a finished step and looks at its outputs.
    pub(super) fn state(directory: &Path) -> Result<StepState> {
        let Some(record) = Self::read(directory) else { return Ok(StepState::Absent) };
        let mut missing = false;
        for output in &record.outputs {
            let path = directory.join(&output.path);
            let found = path.symlink_metadata().ok();
            let sound = match (&output.content, &found) {
                (OutputContent::Directory, Some(found)) => found.is_dir(),
                (OutputContent::Link { target }, Some(_)) => {
                    fs::read_link(&path).is_ok_and(|to| to == *target)
                }
                (OutputContent::File(file), Some(found)) => file.is(&path, found)?,
                (OutputContent::File(_), None) if record.origin.is_some() => {
                    missing = true;
                    true
                }
                (_, None) => false,
            };
            if !sound {
                return Ok(StepState::Absent);
            }
        }
        Ok(if missing { StepState::Partial(record) } else { StepState::Whole(record) })
    }

    /// The outputs in a directory, which this host has made.
    pub(super) fn survey(directory: &Path) -> Result<Self> {
        let mut outputs = Vec::new();
        for entry in WalkDir::new(directory).min_depth(1).sort_by_file_name() {
            let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
            let path = entry.path().strip_prefix(directory)?.to_owned();
            let content = if entry.file_type().is_dir() {
                OutputContent::Directory
            } else if entry.file_type().is_symlink() {
                let target = fs::read_link(entry.path());
                OutputContent::Link { target: target.with_context(|| format!("reading {}", path.display()))? }
            } else {
                let (sha256, size) = digest_of_file(entry.path())?;
                let metadata = entry.metadata()?;
                let executable = metadata.permissions().mode() & 0o100 != 0;
                OutputContent::File(FileContent { size, sha256, executable, modified: modified(&metadata) })
            };
            outputs.push(StepOutput { path, content });
        }
        Ok(Self { outputs, origin: None })
    }

    /// The files with their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &FileContent)> {
        self.outputs.iter().filter_map(|output| Some((output.path.as_path(), output.file()?)))
    }

    /// The files at or below these names that are not in `directory`.
    pub(super) fn missing<'a>(
        &'a self,
        directory: &'a Path,
        names: &'a [&str],
    ) -> impl Iterator<Item = (&'a Path, &'a FileContent)> {
        let named = |path: &Path| names.iter().any(|name| path.starts_with(name));
        self.files().filter(move |(path, _)| {
            self.origin.is_some() && named(path) && directory.join(path).symlink_metadata().is_err()
        })
    }

    /// The sum of the sizes of all files, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.files().fold(0, |sum, (_, file)| sum.saturating_add(file.size))
    }

    /// The digest of the outputs below `top` (all for an empty path): their paths, kinds, contents and the execute bit.
    pub(super) fn digest(&self, top: &Path) -> Result<Digest> {
        let below = self.outputs.iter().filter(|output| output.path.starts_with(top));
        let identity = below.map(|StepOutput { path, content }| match content {
            OutputContent::Directory => (path, "directory", None, 0, None),
            OutputContent::Link { target } => (path, "link", Some(target), 0, None),
            OutputContent::File(file) if file.executable => {
                (path, "program", None, file.size, Some(file.sha256))
            }
            OutputContent::File(file) => (path, "file", None, file.size, Some(file.sha256)),
        });
        Ok(Digest::of(&serde_json::to_vec(&identity.collect::<Vec<_>>())?))
    }

    /// Fails unless the outputs can be laid out in a directory and nothing of them comes to lie elsewhere.
    ///
    /// # Errors
    /// [`Class::Verification`] for a path that is not plain, that is there twice, or that is not within a directory of the record.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut directories = BTreeSet::from([Path::new("")]);
        let mut known = BTreeSet::from([Path::new(RECORD_FILE)]);
        for StepOutput { path, content } in &self.outputs {
            let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            let held = path.parent().is_some_and(|parent| directories.contains(parent));
            if !plain || !held || !known.insert(path) {
                let what = format!("its list of outputs has {:?}, which cannot be there", path.display());
                return Err(Failure::new(Class::Verification, what));
            }
            if *content == OutputContent::Directory {
                directories.insert(path);
            }
        }
        Ok(())
    }
}

impl FileContent {
    /// True if this is the file at `path`: by its size and time, or else by its digest.
    fn is(&self, path: &Path, found: &Metadata) -> Result<bool> {
        if !found.is_file() || found.len() != self.size {
            return Ok(false);
        }
        let untouched = self.modified.is_some() && self.modified == modified(found);
        Ok(untouched || digest_of_file(path)?.0 == self.sha256)
    }
}

/// Since 1970; none for a file of before.
fn modified(metadata: &Metadata) -> Option<Duration> {
    let nanoseconds = u32::try_from(metadata.mtime_nsec()).ok()?;
    Some(Duration::new(u64::try_from(metadata.mtime()).ok()?, nanoseconds))
}

/// Marks a step as used now.
pub(super) fn mark_used(directory: &Path) {
    // A cache that cannot be written to can still be read.
    let _ = fs::File::options()
        .append(true)
        .open(directory.join(RECORD_FILE))
        .and_then(|record| record.set_modified(SystemTime::now()));
}

/// The time that files get that are fetched later, so that they are known by it.
pub(super) fn time_of_fetched() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(now.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn record(directory: &Path) -> StepRecord {
        let record = StepRecord::survey(directory).unwrap();
        fs::write(directory.join(RECORD_FILE), serde_json::to_vec(&record).unwrap()).unwrap();
        record
    }

    #[test]
    fn a_digest_follows_paths_kinds_contents_and_the_execute_bit_and_no_time() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("tree")).unwrap();
        fs::write(at("tree/file"), "one").unwrap();
        symlink("file", at("tree/link")).unwrap();
        fs::write(at("other"), "x").unwrap();
        let digest =
            |top: &str| StepRecord::survey(directory.path()).unwrap().digest(Path::new(top)).unwrap();
        let (all, tree) = (digest(""), digest("tree"));
        fs::File::options().append(true).open(at("tree/file")).unwrap().set_modified(UNIX_EPOCH).unwrap();
        assert_eq!((digest(""), digest("tree")), (all, tree));
        fs::write(at("other"), "y").unwrap();
        assert!(digest("") != all && digest("tree") == tree);
        let changes: [&dyn Fn(); 4] = [
            &|| fs::set_permissions(at("tree/file"), fs::Permissions::from_mode(0o755)).unwrap(),
            &|| fs::write(at("tree/file"), "two").unwrap(),
            &|| {
                fs::remove_file(at("tree/link")).unwrap();
                symlink("other", at("tree/link")).unwrap();
            },
            &|| fs::create_dir(at("tree/empty")).unwrap(),
        ];
        let mut before = tree;
        for change in changes {
            change();
            assert_ne!(digest("tree"), before);
            before = digest("tree");
        }
    }

    #[test]
    fn a_changed_link_or_a_missing_directory_is_seen_as_a_changed_file_is() {
        let changes: [&dyn Fn(&Path); 4] = [
            &|at| fs::remove_dir(at.join("empty")).unwrap(),
            &|at| {
                fs::remove_file(at.join("link")).unwrap();
                symlink("elsewhere", at.join("link")).unwrap();
            },
            &|at| fs::write(at.join("file"), "two").unwrap(),
            &|at| fs::remove_file(at.join("file")).unwrap(),
        ];
        for change in changes {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir(directory.path().join("empty")).unwrap();
            fs::write(directory.path().join("file"), "one").unwrap();
            symlink("file", directory.path().join("link")).unwrap();
            record(directory.path());
            assert!(matches!(StepRecord::state(directory.path()).unwrap(), StepState::Whole(_)));
            change(directory.path());
            assert!(matches!(StepRecord::state(directory.path()).unwrap(), StepState::Absent));
        }
    }

    #[test]
    fn outputs_that_would_lie_elsewhere_are_refused() {
        let directory = |path: &str| StepOutput { path: path.into(), content: OutputContent::Directory };
        let link = |path: &str| StepOutput {
            path: path.into(),
            content: OutputContent::Link { target: "/etc".into() },
        };
        for (outputs, good) in [
            (vec![directory("a"), link("a/b")], true),
            (vec![directory("a"), directory("a")], false),
            (vec![link("a"), directory("a/b")], false),
            (vec![directory("a/b")], false),
            (vec![directory("../a")], false),
            (vec![directory("/a")], false),
            (vec![directory("")], false),
            (vec![directory(".step.json")], false),
            (vec![directory("a"), directory("a/..")], false),
        ] {
            let record = StepRecord { outputs, origin: None };
            assert_eq!(record.check().is_ok(), good, "{record:?}");
        }
    }
}
