//! A local repository of downloaded Debian packages, from which `mmdebstrap` installs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::{files, parallel};
use model::architecture::Architecture;
use serde::{Deserialize, Serialize};

use crate::files::CachedFile;
use crate::packages::ResolvedPackage;

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

impl RepositoryFile {
    /// What an index of packages says of it.
    ///
    /// # Errors
    /// [`Class::Verification`] for a file with other content than that of the lock file.
    fn control(&self, name: &str) -> Result<String> {
        let Self { path, size, sha256 } = self;
        if CachedFile::of(path, *sha256, Some(*size))? != CachedFile::Sound {
            let what = format!("{name} in the cache is not the package of the lock file");
            return Err(Failure::new(Class::Verification, what)
                .because(anyhow::anyhow!("{} does not have the digest {sha256}", path.display()))
                .hint("Build again: damaged files are downloaded again.")
                .into());
        }
        let control = SystemRunner.run(&Invocation::new("dpkg-deb").arg("-f").arg(path))?;
        let control = String::from_utf8_lossy(&control);
        Ok(format!("{}\nFilename: pool/{name}\nSize: {size}\nSHA256: {sha256}\n\n", control.trim_end()))
    }
}

impl PackageRepository {
    /// The time of the newest package, in seconds since 1970: the one that `dpkg-deb` gives the members of the file, for Debian's packages
    /// that of the last entry of the changelog (deb(5), dpkg-deb(1), `SOURCE_DATE_EPOCH`). 0 without packages.
    ///
    /// # Errors
    /// [`Class::Verification`] for a file that is no package.
    pub fn newest(&self) -> Result<u64> {
        let times = self.0.iter().map(|(name, file)| {
            package_time(&file.path).class(Class::Verification, || format!("reading the time of {name}"))
        });
        Ok(times.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(0))
    }

    /// The bytes of all packages.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.values().map(|file| file.size).sum()
    }

    /// The repository of these packages among its own.
    #[must_use]
    pub fn of(&self, packages: &[&ResolvedPackage]) -> Self {
        let found = packages.iter().filter_map(|package| self.0.get_key_value(&package.file));
        Self(found.map(|(name, file)| (name.clone(), file.clone())).collect())
    }

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
        let files: Vec<_> = self.0.iter().collect();
        let threads = available_parallelism().map_or(1, usize::from);
        let controls = parallel::map(&files, threads, |(name, file)| {
            symlink(&file.path, pool.join(name)).with_context(|| format!("linking {name}"))?;
            file.control(name)
        })?;
        let packages = controls.concat();
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

/// The time of a package, which is an archive of ar(5): the first member has it, as decimal digits.
fn package_time(package: &Path) -> Result<u64> {
    const MAGIC: &[u8] = b"!<arch>\n";
    let mut start = [0; 8 + 16 + 12];
    File::open(package)?.read_exact(&mut start)?;
    let (magic, member) = start.split_at(MAGIC.len());
    ensure!(magic == MAGIC, "it does not begin as a Debian package");
    let time = String::from_utf8_lossy(&member[16..]).trim_end().to_owned();
    time.parse().with_context(|| format!("its first member has the time {time:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package as dpkg-deb(1) begins it, with the time of its first member.
    fn package(directory: &Path, name: &str, time: &str) -> (String, RepositoryFile) {
        let path = directory.join(name);
        fs::write(
            &path,
            format!("!<arch>\ndebian-binary   {time:<12}0     0     100644  4         `\n2.0\n"),
        )
        .unwrap();
        (name.to_owned(), RepositoryFile { path, size: 0, sha256: Digest::of(b"") })
    }

    #[test]
    fn packages_have_the_time_of_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let newest = |times: &[&str]| {
            let named = times.iter().enumerate();
            PackageRepository(
                named.map(|(n, time)| package(directory.path(), &n.to_string(), time)).collect(),
            )
            .newest()
        };
        assert_eq!(newest(&["1700000001", "0", "1600000000"]).unwrap(), 1_700_000_001);
        assert_eq!(newest(&[]).unwrap(), 0);
        let refused = newest(&["1700000001", "today"]).unwrap_err();
        assert_eq!(base::failure::class_of(&refused), Class::Verification);
        assert!(format!("{refused:#}").contains("the time of 1"), "{refused:#}");
    }

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
