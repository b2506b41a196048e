//! An IPv4 network in a document.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An IPv4 network: its address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: Ipv4Addr,
    length: u8,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseCidrError {
    /// Not an address, a slash and a length.
    #[error("not a network such as 10.52.0.0/16")]
    Form,
    /// Bits behind the prefix are set.
    #[error("the address of a node, not of the network {0}")]
    Host(Cidr),
}

impl Cidr {
    /// The network that `address` is in.
    #[must_use]
    pub fn containing(address: Ipv4Addr, length: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
        Self { address: Ipv4Addr::from_bits(address.to_bits() & mask), length: length.min(32) }
    }

    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Bits of its prefix.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        Self::containing(address, self.length) == self
    }

    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let length = self.length.min(other.length);
        Self::containing(self.address, length) == Self::containing(other.address, length)
    }

    /// The address so many after the first, if it is in the network.
    #[must_use]
    pub fn nth(self, number: u32) -> Option<Ipv4Addr> {
        let address = Ipv4Addr::from_bits(self.address.to_bits().checked_add(number)?);
        self.contains(address).then_some(address)
    }
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, length) = text.split_once('/').ok_or(ParseCidrError::Form)?;
        let address = address.parse().map_err(|_| ParseCidrError::Form)?;
        let digits = length.bytes().all(|b| b.is_ascii_digit()) && !length.starts_with('+');
        let length =
            length.parse().ok().filter(|length| digits && *length <= 32).ok_or(ParseCidrError::Form)?;
        let network = Self::containing(address, length);
        if network.address == address { Ok(network) } else { Err(ParseCidrError::Host(network)) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl TryFrom<String> for Cidr {
    type Error = ParseCidrError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl JsonSchema for Cidr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cidr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "cidr" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_know_what_is_in_them() {
        let pods: Cidr = "10.52.0.0/16".parse().unwrap();
        assert!(pods.contains([10, 52, 255, 255].into()) && !pods.contains([10, 53, 0, 0].into()));
        assert!(
            pods.overlaps("10.0.0.0/8".parse().unwrap()) && !pods.overlaps("10.53.0.0/16".parse().unwrap())
        );
        assert_eq!(pods.nth(10), Some([10, 52, 0, 10].into()));
        assert_eq!("10.0.0.0/30".parse::<Cidr>().unwrap().nth(4), None);
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains([1, 2, 3, 4].into()));
        assert!(
            matches!("10.52.0.1/16".parse::<Cidr>(), Err(ParseCidrError::Host(network)) if network == pods)
        );
        for text in ["", "10.52.0.0", "10.52.0.0/33", "10.52.0.0/", "10.52.0.0/+8", "x/8"] {
            assert!(matches!(text.parse::<Cidr>(), Err(ParseCidrError::Form)), "{text}");
        }
    }
}
