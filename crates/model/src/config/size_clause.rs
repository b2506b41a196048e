//! A range of sizes, by which a disk can be chosen.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use base::size::ByteSize;

/// A range of sizes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SizeClause {
    /// `None`: no lower limit.
    pub least: Option<ByteSize>,
    /// `None`: no upper limit.
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
