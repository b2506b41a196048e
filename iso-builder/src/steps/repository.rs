//! A local repository of downloaded Debian packages, from which `mmdebstrap` installs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::files;
use serde::{Deserialize, Serialize};

/// Downloaded packages: file name, and the path of the file with the content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackageRepository(pub BTreeMap<String, PathBuf>);

impl PackageRepository {
    /// Lays out a repository for apt in `directory`, trusted because every file was checked by its digest, and returns
    /// its line for sources.list.
    pub(super) fn lay_out(&self, directory: &Path, suite: &str) -> Result<String> {
        let pool = directory.join("pool");
        let index = directory.join(format!("dists/{suite}/main/binary-amd64"));
        files::make_directory(&pool, 0o755)?;
        files::make_directory(&index, 0o755)?;
        let mut packages = String::new();
        for (name, file) in &self.0 {
            symlink(file, pool.join(name)).with_context(|| format!("linking {name}"))?;
            let control = SystemRunner.run(&Invocation::new("dpkg-deb").arg("-f").arg(file))?;
            let (sha256, size) = crate::files::digest_of_file(file)?;
            packages.push_str(String::from_utf8_lossy(&control).trim_end());
            write!(packages, "\nFilename: pool/{name}\nSize: {size}\nSHA256: {sha256}\n\n")?;
        }
        fs::write(index.join("Packages"), &packages)?;
        let release = format!(
            "Origin: iso-builder\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\n\
             Components: main\nSHA256:\n {} {} main/binary-amd64/Packages\n",
            Digest::of(packages.as_bytes()),
            packages.len()
        );
        fs::write(directory.join(format!("dists/{suite}/Release")), release)?;
        let directory = directory.canonicalize()?;
        Ok(format!("deb [trusted=yes] copy:{} {suite} main", directory.display()))
    }
}
