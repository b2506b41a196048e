//! The error for a store that does not answer now and may answer later.

/// What asked is to ask again; nothing was decided.
#[derive(Debug, thiserror::Error)]
#[error("the database of the fleet is unavailable: {0}")]
pub struct StoreUnavailable(pub String);
