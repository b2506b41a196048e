//! What a node remembers of trust, whichever release it runs: a file beside the node document, which only grows, survives updates and
//! resets, and goes only with a new install. Every good boot adds to it (`node::update`), every judgment of an update reads it
//! ([`super::trust_store::of_node`]).

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::paths::{CONFIG, below};
use base::failure::{Class, Classify, Failure};
use base::files;
use trust::TrustMemory;

/// Its name on the configuration partition.
pub const FILE: &str = "trust-memory.json";

/// Every user of the node may know.
const MODE: u32 = 0o644;

/// The most bytes that it may have.
const LENGTH_MAX: u64 = 1 << 20;

fn path(root: &Path) -> PathBuf {
    below(root, CONFIG).join(FILE)
}

/// What the node at `root` remembers; nothing before its first good boot.
///
/// # Errors
/// [`Class::Verification`] if the file is damaged or cannot be read: it must not count as empty then.
pub fn read(root: &Path) -> Result<TrustMemory> {
    let file = path(root);
    let what = || format!("reading {}", file.display());
    let damaged = |error: anyhow::Error| {
        Failure::new(Class::Verification, what())
            .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
            .hint(
                "The file says which releases this node must not take any more. Without it the node forgets that until \
                 its next good boot. To take updates again all the same, remove the file.",
            )
    };
    let Some(bytes) = files::read_if_present(&file, LENGTH_MAX).map_err(damaged)? else {
        return Ok(TrustMemory::default());
    };
    Ok(TrustMemory::parse(&bytes).map_err(|error| damaged(error.into()))?)
}

/// Adds `more` to what the node at `root` remembers; returns what is new there, or none. After a loss of power the file is the old one or
/// the new one.
///
/// # Errors
/// Those of [`read`], after which the file is as it was; [`Class::DiskIo`] if it cannot be written.
pub fn add(root: &Path, more: TrustMemory) -> Result<Option<TrustMemory>> {
    let before = read(root)?;
    let memory = before.clone().joined(more);
    if memory == before {
        return Ok(None);
    }
    let file = path(root);
    files::write_atomically(&file, &memory.to_bytes(), MODE)
        .class(Class::DiskIo, || format!("writing {}", file.display()))?;
    Ok(Some(memory))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use base::digest::Digest;
    use base::failure::{class_of, render};
    use model::rollback_index::RollbackIndex;
    use trust::Revocations;

    use super::*;

    fn node() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("oem")).unwrap();
        root
    }

    fn memory(floor: u32, releases: &[&[u8]]) -> TrustMemory {
        let releases = releases.iter().map(|bytes| Digest::of(bytes)).collect();
        TrustMemory {
            floor: RollbackIndex(floor),
            revoked: Revocations { releases, ..Revocations::default() },
        }
    }

    #[test]
    fn what_a_node_remembers_grows_and_is_written_only_if_it_does() {
        let root = node();
        assert!(read(root.path()).unwrap().is_empty());
        assert_eq!(add(root.path(), memory(0, &[])).unwrap(), None);
        assert!(!path(root.path()).exists());
        assert_eq!(add(root.path(), memory(2, &[b"a"])).unwrap(), Some(memory(2, &[b"a"])));
        for less in [memory(0, &[]), memory(1, &[b"a"]), memory(2, &[])] {
            assert_eq!(add(root.path(), less).unwrap(), None);
        }
        assert_eq!(add(root.path(), memory(1, &[b"b"])).unwrap(), Some(memory(2, &[b"a", b"b"])));
        assert_eq!(read(root.path()).unwrap(), memory(2, &[b"a", b"b"]));
    }

    #[test]
    fn a_damaged_memory_is_named_does_not_count_as_empty_and_stays() {
        let root = node();
        let file = path(root.path());
        let whole = memory(2, &[b"a"]).to_bytes();
        let huge = [&whole[..], &vec![b' '; usize::try_from(LENGTH_MAX).unwrap()]].concat();
        for bytes in [&b""[..], b"\0\0\0\0", b"{}", &whole[..whole.len() - 3], &huge] {
            fs::write(&file, bytes).unwrap();
            for error in [read(root.path()).unwrap_err(), add(root.path(), memory(3, &[])).unwrap_err()] {
                assert_eq!(class_of(&error), Class::Verification);
                let text = render(&error);
                assert!(
                    text.contains("/oem/trust-memory.json") && text.contains("remove the file"),
                    "{text}"
                );
            }
            assert_eq!(fs::read(&file).unwrap(), bytes);
        }
        fs::remove_file(&file).unwrap();
        symlink("nowhere", &file).unwrap();
        assert_eq!(class_of(&read(root.path()).unwrap_err()), Class::Verification);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(class_of(&read(root.path()).unwrap_err()), Class::Verification);
    }
}
