//! The kernel command line of an installed node: which slot runs and where its partitions are.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;

use crate::failure::{Class, Failure};

/// The two places for an OS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Slot {
    /// Written by the install.
    A,
    /// Written by the first update.
    B,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

/// What udev's links to arrays begin with.
const ARRAYS: &str = "/dev/disk/by-id/md-uuid-";

/// Where a file system lies: a partition by the unique id in its GPT entry, or an array by its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume(PathBuf);

impl Volume {
    /// Where udev puts the link to its device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        self.0.clone()
    }

    fn parse(name: &str, value: &str) -> Result<Self> {
        let id = |prefix: &str, length: usize, between: u8| {
            let id = value.strip_prefix(prefix)?.to_ascii_lowercase();
            let valid = id.len() == length && id.bytes().all(|b| b.is_ascii_hexdigit() || b == between);
            valid.then_some(id)
        };
        let partition = id("PARTUUID=", 36, b'-').map(|id| format!("/dev/disk/by-partuuid/{id}"));
        let device = partition.or_else(|| Some(format!("{ARRAYS}{}", id(ARRAYS, 35, b':')?)));
        let device = device.ok_or_else(|| {
            wrong(format!("{name} is {value:?}, neither PARTUUID= and an id nor the link of an array"))
        });
        Ok(Self(device?.into()))
    }
}

/// What the command line of an installed node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Which slot runs.
    pub slot: Slot,
    /// Where the configuration is.
    pub config: Volume,
    /// Where that is which lasts.
    pub persistent: Volume,
    /// Where the data of virtual machines is, if anywhere.
    pub data: Option<Volume>,
}

impl Installed {
    /// Reads a command line; `None` where it is not that of an installed node (it has no `nqrust.config`).
    /// Of a parameter that comes twice the last counts, as for the kernel.
    pub fn parse(line: &str) -> Result<Option<Self>> {
        let value = |name: &str| {
            let mut values =
                line.split_whitespace().rev().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            values.next()
        };
        let Some(config) = value("nqrust.config") else { return Ok(None) };
        let slot = match value("nqrust.slot") {
            Some("a") => Slot::A,
            Some("b") => Slot::B,
            other => {
                return Err(wrong(format!("nqrust.slot is {:?}, not a or b", other.unwrap_or_default())));
            }
        };
        let persistent = value("nqrust.persistent").unwrap_or_default();
        let data = value("nqrust.data").map(|value| Volume::parse("nqrust.data", value));
        Ok(Some(Self {
            slot,
            config: Volume::parse("nqrust.config", config)?,
            persistent: Volume::parse("nqrust.persistent", persistent)?,
            data: data.transpose()?,
        }))
    }
}

fn wrong(what: String) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("reading the kernel command line: {what}"))
        .hint("Correct the parameters in the boot menu (key e).")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0A0B0C0D-0000-4000-8000-00000000000A";
    const B: &str = "0a0b0c0d-0000-4000-8000-00000000000b";

    #[test]
    fn the_parameters_of_an_installed_node_are_read() {
        let line =
            format!("root=x ro nqrust.slot=b nqrust.config=PARTUUID={A} nqrust.persistent=PARTUUID={B}\n");
        let installed = Installed::parse(&line).unwrap().unwrap();
        assert_eq!(installed.slot, Slot::B);
        assert_eq!(
            installed.config.device(),
            PathBuf::from("/dev/disk/by-partuuid/0a0b0c0d-0000-4000-8000-00000000000a")
        );
        assert_eq!(installed.data, None);
    }

    #[test]
    fn arrays_are_named_by_their_links() {
        let link = "/dev/disk/by-id/md-uuid-0a0b0c0d:00004000:80000000:0000000A";
        let line =
            format!("nqrust.slot=a nqrust.config={link} nqrust.persistent=PARTUUID={B} nqrust.data={link}");
        let installed = Installed::parse(&line).unwrap().unwrap();
        assert_eq!(installed.config.device(), PathBuf::from(link.to_ascii_lowercase()));
        assert_eq!(installed.data, Some(installed.config));
    }

    #[test]
    fn a_live_boot_is_not_an_installed_node() {
        assert_eq!(Installed::parse("root=live:CDLABEL=x nqrust.configuration=1").unwrap(), None);
    }

    #[test]
    fn parameters_that_cannot_be_right_are_named() {
        let good = format!("nqrust.slot=a nqrust.config=PARTUUID={A} nqrust.persistent=PARTUUID={B}");
        for (from, to, named) in [
            ("slot=a", "slot=c", "nqrust.slot"),
            ("nqrust.slot=a", "", "nqrust.slot"),
            (B, "../../sda", "nqrust.persistent"),
            ("nqrust.persistent", "x", "nqrust.persistent"),
            ("config=PARTUUID=", "config=UUID=", "nqrust.config"),
            ("config=PARTUUID=", "config=/dev/disk/by-id/md-uuid-", "nqrust.config"),
        ] {
            let error = Installed::parse(&good.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
