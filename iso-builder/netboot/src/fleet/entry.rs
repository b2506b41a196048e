//! The URL of the fleet page: printed on a terminal, and kept in a file for operators without one.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify};
use base::files::write_atomically;
use model::config::Secret;

use super::query::PAGE;

/// In the state directory.
const NAME: &str = "fleet-url";

/// The URL of the fleet page with its token.
#[derive(Clone, Debug)]
pub struct FleetEntry {
    /// A secret: it gives access to the fleet.
    pub url: Secret,
    /// A file with the URL, readable by its owner alone.
    pub file: PathBuf,
}

impl FleetEntry {
    /// Writes the URL of the server at `base` to a file in `directory`.
    pub fn keep(directory: &Path, base: &str, token: &Secret) -> Result<Self> {
        let url = Secret::new(format!("{base}{PAGE}?token={}", token.expose()));
        let file = directory.join(NAME);
        write_atomically(&file, format!("{}\n", url.expose()).as_bytes(), 0o600)
            .class(Class::DiskIo, || "writing the URL of the fleet page".into())?;
        Ok(Self { url, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_address_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let entry =
            FleetEntry::keep(directory.path(), "http://192.0.2.1:8080", &Secret::new("T-secret")).unwrap();
        let text = std::fs::read_to_string(&entry.file).unwrap();
        assert_eq!(text, "http://192.0.2.1:8080/fleet?token=T-secret\n");
        assert_eq!(std::fs::metadata(&entry.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{entry:?}").contains("T-secret"));
    }
}
