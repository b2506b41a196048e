//! Sizes in bytes, written as people write them.

use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::str::FromStr;

/// A number of bytes. Read from `150Gi`, `512MiB`, `64 KiB`, `0.5Ti`, `4096`, which are powers of 1024, and from `480G`,
/// `480GB`, which are powers of 1000 as drives are sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a size; write a number with Ki, Mi, Gi or Ti, such as 150Gi, or with GB or TB, such as 480GB"
)]
pub struct ParseSizeError(String);

const UNITS: [(&str, u32); 5] = [("", 0), ("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
/// Decimal units by their power of 1000.
const DECIMAL_UNITS: [(&str, u32); 5] = [("K", 1), ("k", 1), ("M", 2), ("G", 3), ("T", 4)];

impl ByteSize {
    /// The largest file that a document may announce. Documents come from outside and are summed up, so a length near
    /// 2^64 must not get past the reader of one.
    pub const LARGEST_FILE: Self = Self(1 << 40);

    #[must_use]
    pub const fn bytes(count: u64) -> Self {
        Self(count)
    }

    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The difference, zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The exact size in the largest unit that divides it, such as `1500Gi`, for documents; `Display` rounds.
    #[must_use]
    pub fn exact(self) -> String {
        let divides = |(_, shift): &(&str, u32)| self.0 > 0 && self.0.is_multiple_of(1 << shift);
        let (unit, shift) = UNITS.into_iter().rev().find(divides).unwrap_or(UNITS[0]);
        format!("{}{unit}", self.0 >> shift)
    }

    /// Rounded down to a multiple of `unit` bytes.
    #[must_use]
    pub const fn align_down(self, unit: u64) -> Self {
        Self(self.0 / unit * unit)
    }

    /// Rounded up to a multiple of `unit` bytes.
    #[must_use]
    pub const fn align_up(self, unit: u64) -> Self {
        Self(self.0.div_ceil(unit) * unit)
    }
}

impl fmt::Display for ByteSize {
    /// In the largest unit that leaves at least one; with one decimal where it is not whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0).unwrap_or(&UNITS[0]);
        if self.0.is_multiple_of(1 << shift) {
            return f.pad(&format!("{} {unit}B", self.0 >> shift));
        }
        #[allow(clippy::cast_precision_loss)]
        let value = self.0 as f64 / (1_u64 << shift) as f64;
        f.pad(&format!("{value:.1} {unit}B"))
    }
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseSizeError(text.to_owned());
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim();
        let unit = unit.strip_suffix('B').unwrap_or(unit);
        let binary = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, shift)| 1_u64 << shift);
        let decimal =
            || DECIMAL_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, power)| 1000_u64.pow(*power));
        let factor = binary.or_else(decimal).ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        // Fractions of a byte, and more digits than these, are meaningless.
        let is_part = (1..=9).contains(&part.len()) && (factor > 1 || part == "0" && !number.contains('.'));
        let part_value: u64 = part.parse().ok().filter(|_| is_part).ok_or_else(wrong)?;
        let scale = 10_u128.pow(u32::try_from(part.len()).map_err(|_| wrong())?);
        let part = u64::try_from(u128::from(part_value) * u128::from(factor) / scale).map_err(|_| wrong())?;
        whole.checked_mul(factor).and_then(|bytes| bytes.checked_add(part)).map(Self).ok_or_else(wrong)
    }
}

impl serde::Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.exact())
    }
}

impl<'de> serde::Deserialize<'de> for ByteSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A size in bytes with an optional unit, binary as in 512Mi and 0.5Ti, or decimal as in 480GB.",
            "pattern": "^[0-9]+(\\.[0-9]{1,9})? *([KMGT]i|[kKMGT])?B?$"
        })
    }
}

impl Add for ByteSize {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for ByteSize {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for ByteSize {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0 * factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("150Gi", 150 << 30),
            ("512MiB", 512 << 20),
            ("64 KiB", 65536),
            ("4096", 4096),
            ("480G", 480_000_000_000),
            ("480GB", 480_000_000_000),
            ("0.5Ti", 1 << 39),
            ("1.92 TB", 1_920_000_000_000),
            ("1.5Gi", 3 << 29),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap().get(), bytes, "{text}");
        }
        for text in
            ["", "Gi", ".5Gi", "1.Gi", "1.2.3Gi", "1.5", "10GBB", "10Gb", "-1", "99999999999Ti", "5 apples"]
        {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_exactly_or_with_one_decimal() {
        assert_eq!(ByteSize::gib(6).to_string(), "6 GiB");
        assert_eq!(ByteSize::bytes(1_610_612_737).to_string(), "1.5 GiB");
        assert_eq!(ByteSize::bytes(0).to_string(), "0 B");
        assert_eq!(ByteSize::bytes(280_039_424).to_string(), "267.1 MiB");
        assert_eq!(ByteSize::bytes(17).to_string(), "17 B");
    }
}
