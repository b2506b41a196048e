//! Which disk: a path, or clauses that exactly one disk meets.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::text::{DevicePath, Line};
use base::size::ByteSize;

/// How a disk is attached, guessed from its place in the device tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Transport {
    Nvme,
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
    type Err = super::text::TextError;

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

/// What a disk is like. Text may end in `*`.
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
    /// Size: `480Gi`, `>=480Gi`, `<=2Ti` or `480Gi..2Ti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeClause>,
    /// How the disk is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Whether it has spinning platters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

/// A range of sizes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SizeClause {
    /// At least so much.
    pub least: Option<ByteSize>,
    /// At most so much.
    pub most: Option<ByteSize>,
}

/// Text that is not a range of sizes.
#[derive(Debug, thiserror::Error)]
#[error("not a range of sizes such as >=480Gi, <=2Ti or 480Gi..2Ti")]
pub struct ParseSizeClauseError;

impl SizeClause {
    /// Whether a disk of this size is meant.
    #[must_use]
    pub fn holds(&self, size: ByteSize) -> bool {
        self.least.is_none_or(|least| size >= least) && self.most.is_none_or(|most| size <= most)
    }
}

impl FromStr for SizeClause {
    type Err = ParseSizeClauseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = |text: &str| text.trim().parse::<ByteSize>().map(Some).map_err(|_| ParseSizeClauseError);
        if let Some(least) = text.strip_prefix(">=") {
            Ok(Self { least: size(least)?, most: None })
        } else if let Some(most) = text.strip_prefix("<=") {
            Ok(Self { least: None, most: size(most)? })
        } else if let Some((least, most)) = text.split_once("..") {
            Ok(Self { least: size(least)?, most: size(most)? })
        } else {
            let exact = size(text)?;
            Ok(Self { least: exact, most: exact })
        }
    }
}

/// As documents have it.
impl fmt::Display for SizeClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least.map(ByteSize::exact), self.most.map(ByteSize::exact)) {
            (Some(least), Some(most)) if least == most => write!(f, "{least}"),
            (Some(least), Some(most)) => write!(f, "{least}..{most}"),
            (Some(least), None) => write!(f, ">={least}"),
            (None, Some(most)) => write!(f, "<={most}"),
            (None, None) => f.write_str(">=0"),
        }
    }
}

impl TryFrom<String> for SizeClause {
    type Error = ParseSizeClauseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SizeClause> for String {
    fn from(clause: SizeClause) -> Self {
        clause.to_string()
    }
}

impl JsonSchema for SizeClause {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SizeClause".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "size-clause" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_sizes_is_read_and_written() {
        for text in ["480Gi", ">=1500Gi", "<=2Ti", "480Gi..1500Gi", "0", ">=1000000000001"] {
            let clause: SizeClause = text.parse().unwrap();
            assert_eq!(clause.to_string(), text);
        }
        let range: SizeClause = "10Gi..20Gi".parse().unwrap();
        assert!(
            range.holds(ByteSize::gib(10))
                && range.holds(ByteSize::gib(20))
                && !range.holds(ByteSize::gib(21))
        );
        for text in ["", ">480Gi", "many", "1Gi..", "..", "1Gi..x"] {
            assert!(text.parse::<SizeClause>().is_err(), "{text}");
        }
    }
}
