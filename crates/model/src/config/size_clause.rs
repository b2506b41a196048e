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
#[error("not a range of sizes such as >=480GB, <=2Ti or 400Gi..2Ti")]
pub struct ParseSizeClauseError;

impl SizeClause {
    /// True if a disk of this size is in the range.
    #[must_use]
    pub fn holds(&self, size: ByteSize) -> bool {
        self.least.is_none_or(|least| size >= least) && self.most.is_none_or(|most| size <= most)
    }
}

/// The largest disk that is sold by a size. Makers round down: a drive of 500 GB has 500107862016 bytes (IDEMA LBA1-03).
fn up_to(text: &str, size: ByteSize) -> ByteSize {
    let is_decimal = text.contains(|c: char| c.is_ascii_alphabetic() && c != 'B') && !text.contains('i');
    if is_decimal { ByteSize::bytes(size.get().saturating_add(size.get() / 100)) } else { size }
}

impl FromStr for SizeClause {
    type Err = ParseSizeClauseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let least = |text: &str| text.trim().parse::<ByteSize>().map(Some).map_err(|_| ParseSizeClauseError);
        let most = |text: &str| least(text).map(|size| size.map(|size| up_to(text, size)));
        if let Some(text) = text.strip_prefix(">=") {
            Ok(Self { least: least(text)?, most: None })
        } else if let Some(text) = text.strip_prefix("<=") {
            Ok(Self { least: None, most: most(text)? })
        } else if let Some((from, to)) = text.split_once("..") {
            Ok(Self { least: least(from)?, most: most(to)? })
        } else {
            Ok(Self { least: least(text)?, most: most(text)? })
        }
    }
}

/// The spelling that documents use.
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
        let sold: SizeClause = "480GB".parse().unwrap();
        assert!(
            sold.holds(ByteSize::bytes(480_103_981_056)) && !sold.holds(ByteSize::bytes(500_107_862_016))
        );
        let most: SizeClause = "<= 500GB".parse().unwrap();
        assert!(
            most.holds(ByteSize::bytes(500_107_862_016)) && !most.holds(ByteSize::bytes(512_110_190_592))
        );
        assert_eq!(sold.to_string().parse::<SizeClause>().unwrap(), sold, "a node's document says the same");
        for text in ["", ">480Gi", "many", "1Gi..", "..", "1Gi..x"] {
            assert!(text.parse::<SizeClause>().is_err(), "{text}");
        }
    }
}
