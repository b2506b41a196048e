//! What a step is known by.

use anyhow::Result;
use base::digest::Digest;
use serde::Serialize;

/// The identity of a step: what it is and everything that goes into it.
#[derive(Clone, Debug, Serialize)]
pub struct StepKey {
    pub(super) name: &'static str,
    /// Incremented when the step's code makes something else of the same inputs.
    recipe: u32,
    inputs: serde_json::Value,
}

impl StepKey {
    /// A step `name`, its `recipe` revision, and its inputs: parameters, and digests of files.
    pub fn new(name: &'static str, recipe: u32, inputs: serde_json::Value) -> Self {
        Self { name, recipe, inputs }
    }

    /// The digest of the identity. (`serde_json` keeps object keys sorted.)
    pub(super) fn digest(&self) -> Result<Digest> {
        Ok(Digest::of(&serde_json::to_vec(self)?))
    }
}
