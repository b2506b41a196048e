//! Which releases an owner trusts.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::text::Line;
use formats::minisign::PublicKey;

/// Which releases are installed on a node, and which it is updated to. It adds to the trust store of the OS image. For the
/// medium that brings it, it does not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Trust {
    /// Public keys that sign releases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<OwnerKey>,
    /// Whether the keys of the OS image no longer count.
    pub replace: bool,
    /// How many different keys have to sign a release; that of the OS image unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub threshold: Option<u32>,
    /// What becomes of a release that not enough of these keys have signed; that of the OS image unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<UnsignedRelease>,
}

/// A public key of the owner of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerKey {
    /// Shown wherever a release is that the key has signed.
    pub name: Line,
    /// The public key as `minisign` and `iso-builder keys` write it: the second line of the file that ends in `.pub`.
    pub key: ReleaseKey,
}

/// What becomes of a release that not enough trusted keys have signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnsignedRelease {
    /// It is used, with a warning.
    Allow,
    /// It is refused.
    Refuse,
}

/// Which customizations of media are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CustomizationPolicy {
    /// Any: whoever has the medium may customize it.
    #[default]
    Any,
    /// Only those that a trusted key has signed.
    Signed,
}

impl CustomizationPolicy {
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

impl Trust {
    /// Whether it leaves the trust store of the OS image as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A public key of minisign. It is written as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReleaseKey(pub PublicKey);

impl JsonSchema for ReleaseKey {
    fn schema_name() -> Cow<'static, str> {
        "ReleaseKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "minisign-key" })
    }
}
