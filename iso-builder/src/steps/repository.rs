//! A local repository of downloaded Debian packages, from which `mmdebstrap` installs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use model::architecture::Architecture;
use serde::{Deserialize, Serialize};

use crate::files::CachedFile;

/// Downloaded packages by file name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackageRepository(pub BTreeMap<String, RepositoryFile>);

/// A downloaded package, as the lock file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RepositoryFile {
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
}

impl PackageRepository {
    /// Lays out a repository for apt in `directory`, and returns its line for sources.list. apt may trust it without a
    /// signature: each file is compared with the lock file here, and apt compares what it copies with the same digests.
    ///
    /// # Errors
    /// [`Class::Verification`] for a file with other content.
    pub(super) fn lay_out(
        &self,
        directory: &Path,
        suite: &str,
        architecture: Architecture,
    ) -> Result<String> {
        let pool = directory.join("pool");
        let index = directory.join(format!("dists/{suite}/main/binary-{architecture}"));
        files::make_directory(&pool, 0o755)?;
        files::make_directory(&index, 0o755)?;
        let mut packages = String::new();
        for (name, RepositoryFile { path, size, sha256 }) in &self.0 {
            if CachedFile::of(path, *sha256, Some(*size))? != CachedFile::Sound {
                let what = format!("{name} in the cache is not the package of the lock file");
                return Err(Failure::new(Class::Verification, what)
                    .because(anyhow::anyhow!("{} does not have the digest {sha256}", path.display()))
                    .hint("Build again: damaged files are downloaded again.")
                    .into());
            }
            symlink(path, pool.join(name)).with_context(|| format!("linking {name}"))?;
            let control = SystemRunner.run(&Invocation::new("dpkg-deb").arg("-f").arg(path))?;
            packages.push_str(String::from_utf8_lossy(&control).trim_end());
            write!(packages, "\nFilename: pool/{name}\nSize: {size}\nSHA256: {sha256}\n\n")?;
        }
        fs::write(index.join("Packages"), &packages)?;
        let release = format!(
            "Origin: iso-builder\nSuite: {suite}\nCodename: {suite}\nArchitectures: {architecture}\n\
             Components: main\nSHA256:\n {} {} main/binary-{architecture}/Packages\n",
            Digest::of(packages.as_bytes()),
            packages.len()
        );
        fs::write(directory.join(format!("dists/{suite}/Release")), release)?;
        let directory = directory.canonicalize()?;
        Ok(format!("deb [trusted=yes] copy:{} {suite} main", directory.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_was_changed_in_the_cache_is_not_offered_to_apt() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("package");
        fs::write(&path, "changed").unwrap();
        let file = RepositoryFile { path, size: 7, sha256: Digest::of(b"package") };
        let repository = PackageRepository([("a_1_amd64.deb".to_owned(), file)].into());
        let refused = repository
            .lay_out(&directory.path().join("repository"), "trixie", Architecture::Amd64)
            .unwrap_err();
        assert_eq!(base::failure::class_of(&refused), Class::Verification);
        assert!(format!("{refused:#}").contains("a_1_amd64.deb in the cache"), "{refused:#}");
    }
}
