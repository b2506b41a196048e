//! Which disk: a path, or clauses that exactly one disk meets.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::size_clause::{ParseSizeClauseError, SizeClause};
use super::text::{DevicePath, Line};

/// How a disk is attached, guessed from its place in the device tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Transport {
    Nvme,
    #[serde(rename = "nvme-tcp")]
    NvmeTcp,
    Virtio,
    Usb,
    Ata,
    Sas,
    Iscsi,
    Mmc,
    Scsi,
    Other,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DiskSelector {
    /// A path below `/dev`.
    Path(DevicePath),
    /// What the disk is like; all that is given has to hold, and for one disk only.
    Clauses(DiskClauses),
}

impl FromStr for DiskSelector {
    type Err = document::text::TextError;

    /// A path.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::Path)
    }
}

impl fmt::Display for DiskSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Clauses(clauses) => {
                let json = base::encode::json(clauses);
                let parts = json.as_object().into_iter().flatten().map(|(key, value)| match value.as_str() {
                    Some(text) => format!("{key} {text}"),
                    None => format!("{key} {value}"),
                });
                f.write_str(&parts.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// What a disk is like. In text `*` stands for any characters and `?` for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskClauses {
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<Line>,
    /// World wide name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<Line>,
    /// Model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Line>,
    /// Name in `/dev/disk/by-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_id: Option<Line>,
    /// Name in `/dev/disk/by-path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_path: Option<Line>,
    /// Size: `480GB`, `>=480GB`, `<= 2Ti` or `400Gi..2Ti`. G and GB are decimal, as drives are sold, Gi and GiB binary.
    /// `480GB` alone and `<=480GB` mean every drive that is sold by this size, which has up to 1% more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeClause>,
    /// How the disk is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Whether it has spinning platters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}
