//! The directory that the outputs of a build go to, all together or not at all.
//!
//! They are made in a hidden directory within it, on the same file system, and renamed at the end. A few renames cannot be
//! one, so the old list of digests and the old manifest go first and the new ones come last: a directory with a list has
//! the outputs of one build, whenever the builder was killed ([`medium::build_output`] says it to those who verify).
//!
//! A build holds a lock on the directory. Whoever has it knows that nobody else works there, and removes what a killed build
//! has left.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::cancellation::{self, Cleanup};
use base::failure::{Class, Classify, Failure};
use base::files::{self, named};
use base::progress::Progress;
use medium::build_output::{CHECKSUMS, REPORT, UNFINISHED};
use medium::by_architecture::by_architecture;
use model::architecture::Architecture;
use model::release::MANIFEST;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The name of a definition: that of its file, without the ending.
pub(super) fn definition_name(file: &Path) -> Option<&OsStr> {
    if named::is_standard(file) { Some("standard-input".as_ref()) } else { file.file_stem() }
}

/// The directory for the outputs of each definition: `output` of one, and of several a directory in it with the name of the definition's
/// file.
///
/// # Errors
/// [`Class::Invalid`] if two have the same name, if one is for an architecture's directory, or if `output` has the outputs of one build.
pub(super) fn directories_of<'d>(
    output: &Path,
    definitions: &'d [PathBuf],
) -> Result<Vec<(&'d Path, PathBuf)>> {
    if let [one] = definitions {
        return Ok(vec![(one, output.to_owned())]);
    }
    if output.join(CHECKSUMS).exists()
        || output.join(MANIFEST).exists()
        || !by_architecture(output).is_empty()
    {
        let what = format!("{} has the outputs of one definition", output.display());
        let hint = "Name another directory, --output DIR, or remove what is there.";
        return Err(Failure::new(Class::Invalid, what).hint(hint).into());
    }
    let mut directories: Vec<(&Path, PathBuf)> = Vec::new();
    for file in definitions {
        let name = definition_name(file).with_context(|| format!("{} is not a file", file.display()))?;
        let directory = output.join(name);
        let told = named::told(file);
        let refused = if let Some((other, _)) = directories.iter().find(|(_, known)| *known == directory) {
            format!("{told} and {} would both be built into {}", named::told(other), directory.display())
        } else if Architecture::ALL.iter().any(|architecture| name == architecture.debian()) {
            format!(
                "{told} would be built into {}, which is a place for an architecture",
                directory.display()
            )
        } else {
            directories.push((file, directory));
            continue;
        };
        return Err(Failure::new(Class::Invalid, refused).hint("Give the file another name.").into());
    }
    Ok(directories)
}

/// The directory of the outputs of one image in what a user named: with several variants one below it for each, and with several
/// architectures one in that for each. `own` is the architecture if there are several.
///
/// # Errors
/// [`Class::Invalid`] if there are outputs of another kind of definition: what is published from there would be of two builds.
pub(super) fn directory_of(
    output: &Path,
    variant: Option<&str>,
    own: Option<Architecture>,
) -> Result<PathBuf> {
    let refuse = |directory: &Path, kind: &str| {
        let what = format!("{} has outputs of a definition {kind}", directory.display());
        let hint = "Name another directory, --output DIR, or remove what is there.";
        Err(Failure::new(Class::Invalid, what).hint(hint).into())
    };
    let levels = [variant.map(|name| ("variants", name)), own.map(|own| ("architectures", own.debian()))];
    let mut directory = output.to_owned();
    for (key, name) in levels.into_iter().flatten() {
        if directory.join(CHECKSUMS).exists() || directory.join(MANIFEST).exists() {
            return refuse(&directory, &format!("without `{key}`"));
        }
        if key == "variants" && !by_architecture(&directory).is_empty() {
            return refuse(&directory, "without `variants`");
        }
        directory.push(name);
    }
    match own.is_none() && !by_architecture(&directory).is_empty() {
        true => refuse(&directory, "with `architectures`"),
        false => Ok(directory),
    }
}

/// The directory of outputs, held by this build.
#[derive(Debug)]
pub(super) struct OutputDirectory {
    /// As the user named it.
    path: PathBuf,
    unfinished: PathBuf,
    /// None on a file system without locks.
    _lock: Option<Flock<File>>,
    _cleanup: Cleanup,
}

impl OutputDirectory {
    /// Makes the directory at `path` unless it is there; waits for another build that writes there.
    pub(super) fn open(path: &Path, progress: &Progress) -> Result<Self> {
        let new = !path.exists();
        files::output_directory(path, 0o755)?;
        let what = || format!("preparing {}", path.display());
        let lock = lock(path, progress).class(Class::DiskIo, what)?;
        // A change of the working directory must not matter at the end.
        let absolute = path.canonicalize().class(Class::DiskIo, what)?;
        let unfinished = absolute.join(UNFINISHED);
        remove(&unfinished).class(Class::DiskIo, what)?;
        fs::create_dir(&unfinished).class(Class::DiskIo, what)?;
        let left = unfinished.clone();
        let _cleanup = cancellation::on_end(move || {
            // Threads may still be writing; they do not find the renamed directory.
            let away = left.with_extension("cancelled");
            let _ = remove(&away);
            let _ = fs::rename(&left, &away).and_then(|()| remove(&away));
            if new {
                let _ = fs::remove_dir(&absolute);
            }
        });
        Ok(Self { path: path.to_owned(), unfinished, _lock: lock, _cleanup })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the output `name` is made.
    pub(super) fn unfinished(&self, name: &str) -> PathBuf {
        self.unfinished.join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let what = || format!("writing {}", self.path.join(name).display());
        let mut file = File::create(self.unfinished(name)).class(Class::DiskIo, what)?;
        io::Write::write_all(&mut file, bytes).and_then(|()| file.sync_all()).class(Class::DiskIo, what)
    }

    /// Moves what was made to its place and removes the outputs `stale`, which are of an earlier build.
    pub(super) fn commit(self, stale: &BTreeSet<String>) -> Result<()> {
        // No signal comes in between.
        let _whole = cancellation::hold();
        let what = || format!("moving the outputs into {}", self.path.display());
        self.exchange(stale).class(Class::DiskIo, what)
    }

    fn exchange(&self, stale: &BTreeSet<String>) -> Result<()> {
        let mut made = BTreeSet::new();
        for entry in fs::read_dir(&self.unfinished)? {
            made.insert(entry?.file_name().into_string().ok().context("an output has no name in UTF-8")?);
        }
        let says_the_same = |name: &str| -> bool {
            let both = [self.unfinished(name), self.path.join(name)].map(fs::read);
            matches!(both, [Ok(new), Ok(old)] if new == old)
        };
        // If no medium has changed, the list stays as well: only the report is new.
        if stale.is_empty() && made.iter().all(|name| name == REPORT || says_the_same(name)) {
            return self.rename(REPORT);
        }
        for name in [CHECKSUMS, MANIFEST, REPORT].into_iter().chain(stale.iter().map(String::as_str)) {
            remove_file(&self.path.join(name))?;
        }
        self.sync()?;
        let last = [MANIFEST, CHECKSUMS];
        for name in made.iter().map(String::as_str).filter(|name| !last.contains(name)) {
            self.rename(name)?;
        }
        self.sync()?;
        last.into_iter().try_for_each(|name| self.rename(name))?;
        self.sync()
    }

    fn rename(&self, name: &str) -> Result<()> {
        fs::rename(self.unfinished(name), self.path.join(name)).with_context(|| format!("naming {name}"))
    }

    /// A power cut must not undo an earlier rename and keep a later one.
    fn sync(&self) -> Result<()> {
        Ok(File::open(&self.path)?.sync_all()?)
    }
}

impl Drop for OutputDirectory {
    fn drop(&mut self) {
        let _ = remove(&self.unfinished);
    }
}

fn lock(path: &Path, progress: &Progress) -> Result<Option<Flock<File>>> {
    let directory = File::open(path)?;
    let fd = directory.as_fd().try_clone_to_owned()?;
    match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => {
            progress.note("outputs", format!("Waiting for another build that writes to {}", path.display()));
            Ok(Some(Flock::lock(File::from(fd), FlockArg::LockExclusive).map_err(|(_, error)| error)?))
        }
        // NFS, for one, locks no directories.
        Err(_) => Ok(None),
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &Path) -> OutputDirectory {
        OutputDirectory::open(path, &Progress::silent()).unwrap()
    }

    fn build(path: &Path, text: &str) -> OutputDirectory {
        let outputs = directory(path);
        for name in ["a.iso", MANIFEST, CHECKSUMS, REPORT] {
            outputs.write(name, text.as_bytes()).unwrap();
        }
        outputs
    }

    fn found(path: &Path) -> Vec<(String, String)> {
        let mut found: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(&path).unwrap())
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn each_of_several_definitions_has_a_directory_and_none_is_mixed_with_another() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path();
        let of = |names: &[&str]| {
            let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            let found = directories_of(out, &names).map_err(|error| format!("{error:#}"))?;
            Ok::<_, String>(found.into_iter().map(|(_, path)| path).collect::<Vec<_>>())
        };
        assert_eq!(of(&["a/edge.yaml"]).unwrap(), [out]);
        let two = [out.join("edge"), out.join("standard-input")];
        assert_eq!(of(&["a/edge.yaml", "-"]).unwrap(), two);
        let same = of(&["a/edge.yaml", "b/edge.yml"]).unwrap_err();
        assert!(same.contains("b/edge.yml and a/edge.yaml would both be built"), "{same}");
        let place = of(&["a.yaml", "arm64.yaml"]).unwrap_err();
        assert!(place.contains("a place for an architecture"), "{place}");
        fs::write(out.join(CHECKSUMS), "").unwrap();
        assert_eq!(of(&["a.yaml"]).unwrap(), [out]);
        assert!(of(&["a.yaml", "b.yaml"]).unwrap_err().contains("the outputs of one definition"));
    }

    #[test]
    fn outputs_come_together_and_what_is_not_finished_is_swept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("dist");
        build(&path, "one").commit(&BTreeSet::new()).unwrap();
        fs::write(path.join("mine"), "x").unwrap();
        fs::write(path.join("a-vmlinuz"), "one").unwrap();
        let before = found(&path);
        assert_eq!(before.len(), 6);
        drop(build(&path, "two"));
        assert_eq!(found(&path), before, "a build that failed changes nothing");
        fs::create_dir(path.join(UNFINISHED)).unwrap();
        fs::write(path.join(UNFINISHED).join("left.iso"), "x").unwrap();
        build(&path, "two").commit(&["a-vmlinuz".to_owned()].into()).unwrap();
        assert!(!path.join(UNFINISHED).exists());
        let after = found(&path);
        assert_eq!(after.len(), 5, "{after:?}");
        assert!(
            after.iter().all(|(name, text)| text == if name == "mine" { "x" } else { "two" }),
            "{after:?}"
        );
    }

    #[test]
    fn a_directory_with_a_list_of_digests_is_of_one_build_wherever_the_exchange_is_cut_off() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("dist");
        let mut cut = 0;
        // A directory in the place of a file stops the exchange there, as a kill would.
        for obstacle in ["a.iso", MANIFEST, REPORT] {
            let _ = fs::remove_dir_all(&path);
            build(&path, "one").commit(&BTreeSet::new()).unwrap();
            let outputs = build(&path, "two");
            fs::remove_file(path.join(obstacle)).unwrap();
            fs::create_dir_all(path.join(obstacle).join("full")).unwrap();
            assert!(outputs.commit(&BTreeSet::new()).is_err());
            cut += usize::from(!path.join(CHECKSUMS).exists());
            fs::remove_dir_all(path.join(obstacle)).unwrap();
            build(&path, "three").commit(&BTreeSet::new()).unwrap();
            assert!(found(&path).iter().all(|(_, text)| text == "three"), "the next build mends it");
        }
        assert_eq!(cut, 3);
    }

    #[test]
    fn each_variant_and_architecture_has_a_directory_and_no_outputs_of_another_kind_of_definition_beside_it()
    {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("dist");
        let (arm64, amd64) = (Some(Architecture::Arm64), Some(Architecture::Amd64));
        let own = directory_of(&path, None, arm64).unwrap();
        assert_eq!(own, path.join("arm64"));
        assert_eq!(directory_of(&path, None, None).unwrap(), path);
        assert_eq!(directory_of(&path, Some("edge"), arm64).unwrap(), path.join("edge/arm64"));
        build(&own, "one").commit(&BTreeSet::new()).unwrap();
        assert_eq!(directory_of(&path, None, amd64).unwrap(), path.join("amd64"));
        let single = place.path().join("single");
        build(&single.join("edge"), "one").commit(&BTreeSet::new()).unwrap();
        assert_eq!(directory_of(&single, Some("edge"), None).unwrap(), single.join("edge"));
        build(&single, "one").commit(&BTreeSet::new()).unwrap();
        for (output, variant, own, told) in [
            (&path, None, None, "with `architectures`"),
            (&path, Some("edge"), arm64, "without `variants`"),
            (&single, None, amd64, "without `architectures`"),
            (&single, Some("edge"), None, "without `variants`"),
        ] {
            let error = directory_of(output, variant, own).unwrap_err();
            assert_eq!(base::failure::class_of(&error), Class::Invalid);
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn a_second_build_waits_for_the_first() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("dist");
        let first = build(&path, "one");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| build(&path, "two").commit(&BTreeSet::new()).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!second.is_finished());
            first.commit(&BTreeSet::new()).unwrap();
        });
        assert!(found(&path).iter().all(|(_, text)| text == "two"));
    }
}
