//! Reports about an install and a node: to the server of a fleet, to webhooks, and as an archive for people.

pub mod archive;
pub mod fleet;
pub mod webhook;
