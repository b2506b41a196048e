//! The address with which an operator opens the page: told on a terminal, and kept in a file for those who have none.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify};
use base::files::write_atomically;
use model::config::Secret;

use super::routes::PAGE;

/// The name of the file in the directory of the state.
const NAME: &str = "fleet-url";

/// The address, with the token in it.
#[derive(Clone, Debug)]
pub struct FleetEntry {
    /// For whoever may see the fleet, and for nobody else.
    pub url: Secret,
    /// The file that has it, for its owner alone.
    pub file: PathBuf,
}

impl FleetEntry {
    /// The address on the server that is reached at `base`, kept in `directory`.
    pub fn keep(directory: &Path, base: &str, token: &Secret) -> Result<Self> {
        let url = Secret::new(format!("{base}{PAGE}?token={}", token.expose()));
        let file = directory.join(NAME);
        write_atomically(&file, format!("{}\n", url.expose()).as_bytes(), 0o600)
            .class(Class::DiskIo, || "keeping the address of the fleet's page".into())?;
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
