//! The identity of a node: the machine id that stays with it although `/etc` is new at every boot.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use uuid::Uuid;

use base::failure::{Class, Classify};
use base::files;

/// A machine id, machine-id(5): 32 lower-case hexadecimal digits, not all zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineId(String);

impl MachineId {
    #[must_use]
    pub fn fresh() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    /// Writes a random one beside the document at `config` if there is none: on the first start of a copied disk.
    pub fn give(config: &Path) -> Result<()> {
        match Self::beside(config)? {
            Some(_) => Ok(()),
            None => {
                let path = config.with_file_name("machine-id");
                files::write_atomically(&path, format!("{}\n", Self::fresh()).as_bytes(), 0o444)
                    .class(Class::DiskIo, || format!("storing {}", path.display()))
            }
        }
    }

    /// Enough of it to distinguish nodes in a name.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..8]
    }

    /// The id beside the document at `config`; `None` if there is none.
    pub fn beside(config: &Path) -> Result<Option<Self>> {
        let path = config.with_file_name("machine-id");
        let Some(text) = files::read_text_if_present(&path)? else { return Ok(None) };
        text.trim_end().parse().map(Some).with_context(|| format!("reading {}", path.display()))
    }
}

impl FromStr for MachineId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let hexadecimal = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() != 32 || !hexadecimal || text.bytes().all(|b| b == b'0') {
            bail!("a machine id has 32 lower-case hexadecimal digits and is not all zeros");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_32_digits_and_may_be_absent() {
        let directory = tempfile::tempdir().unwrap();
        let document = directory.path().join("node.yaml");
        assert_eq!(MachineId::beside(&document).unwrap(), None);
        let path = directory.path().join("machine-id");
        std::fs::write(&path, "0123456789abcdef0123456789abcdef\n").unwrap();
        assert_eq!(MachineId::beside(&document).unwrap().unwrap().short(), "01234567");
        for text in ["", "uninitialized\n", "0123456789ABCDEF0123456789ABCDEF\n", &"0".repeat(32)] {
            std::fs::write(&path, text).unwrap();
            assert!(MachineId::beside(&document).is_err(), "{text}");
        }
    }
}
