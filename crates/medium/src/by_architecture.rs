//! Releases for several architectures in one directory, each in a directory with the name of its architecture: what a build of a
//! definition with `architectures` writes.

use std::path::{Path, PathBuf};

use model::architecture::Architecture;
use model::release::MANIFEST;

/// The directories below `path` that are for one architecture each. None if `path` has a release itself, or none of them has one.
#[must_use]
pub fn by_architecture(path: &Path) -> Vec<(Architecture, PathBuf)> {
    let has_release = |directory: &Path| directory.join(MANIFEST).is_file();
    let below = Architecture::ALL.map(|architecture| (architecture, path.join(architecture.debian())));
    if has_release(path) || !below.iter().any(|(_, directory)| has_release(directory)) {
        return Vec::new();
    }
    // One without a manifest may be of a build that was interrupted, which must not be overlooked.
    below.into_iter().filter(|(_, directory)| directory.is_dir()).collect()
}

/// The release at `path` for this architecture: its directory if there are several, or else `path` itself.
#[must_use]
pub fn of_architecture(path: &Path, architecture: Architecture) -> PathBuf {
    let own = by_architecture(path).into_iter().find(|(of, _)| *of == architecture);
    own.map_or_else(|| path.to_owned(), |(_, directory)| directory)
}

/// The directories in `path` that have a release, or one for each of several architectures, sorted: what a build of several images
/// writes.
#[must_use]
pub fn releases_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let has_release = |path: &PathBuf| path.join(MANIFEST).is_file() || !by_architecture(path).is_empty();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(has_release).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn releases_for_several_architectures_are_found_below_a_directory_that_has_none_itself() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        assert!(by_architecture(root).is_empty());
        for name in ["amd64", "arm64", "riscv64"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        assert!(by_architecture(root).is_empty(), "directories without a release");
        fs::write(root.join("arm64").join(MANIFEST), "{}").unwrap();
        let both = Architecture::ALL.map(|architecture| (architecture, root.join(architecture.debian())));
        assert_eq!(by_architecture(root), both);
        assert_eq!(of_architecture(root, Architecture::Arm64), root.join("arm64"));
        fs::create_dir_all(root.join("several/amd64")).unwrap();
        fs::write(root.join("several/amd64").join(MANIFEST), "{}").unwrap();
        assert_eq!(releases_in(root), [root.join("arm64"), root.join("several")]);
        fs::write(root.join(MANIFEST), "{}").unwrap();
        assert!(by_architecture(root).is_empty(), "its own release counts");
        assert_eq!(of_architecture(root, Architecture::Arm64), root);
    }
}
