//! A conflict of identifiers, as the store keeps it.

use std::net::IpAddr;

use base::digest::Digest;
use serde::Serialize;

use crate::moment::Moment;

/// A request whose identifiers belong to more than one machine or configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityConflict {
    /// The same for the same client, machines and configurations.
    pub id: String,
    pub address: IpAddr,
    /// The identifiers that the client sent, for people.
    pub told: String,
    /// The configurations and machines that the identifiers belong to.
    pub between: Vec<String>,
    pub first: Moment,
    pub last: Moment,
    pub times: u64,
}

impl IdentityConflict {
    /// A conflict that happened for the first time.
    #[must_use]
    pub fn new(address: IpAddr, told: String, between: Vec<String>, now: Moment) -> Self {
        let digest = Digest::of(format!("{address}\n{}", between.join("\n")).as_bytes()).to_string();
        let id = digest[..16].to_owned();
        Self { id, address, told, between, first: now, last: now, times: 1 }
    }
}
