//! The JSON Schema of the cluster file that is published.

use super::document::ClusterFile;
use super::places::within;
use crate::config::harvester::published;

/// The JSON Schema of the document in all its forms, as `installer schema --cluster` prints it.
#[must_use]
pub fn json_schema() -> String {
    published::with_all_forms(schemars::schema_for!(ClusterFile).to_value(), within)
}
