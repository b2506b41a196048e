//! The plan as the executor gets it: with the texts for the node, and closed to changes.

use model::config::Secret;

use super::Plan;

/// Everything that an install writes. It is made when everything is decided, and cannot be changed.
#[derive(Clone, Debug)]
pub struct SealedPlan {
    plan: Plan,
    texts: NodeTexts,
}

/// The texts for the node that are not in the printed plan, because they contain secrets.
#[derive(Clone, Debug)]
pub struct NodeTexts {
    /// The node document, with passwords hashed.
    pub document: Secret,
    /// What the node needs to report to its fleet server.
    pub fleet: Option<Secret>,
    /// The record of this install, for the next one to compare with.
    pub installed: Secret,
    /// The preflight report, for the log.
    pub preflight: String,
}

impl SealedPlan {
    #[must_use]
    pub fn new(plan: Plan, texts: NodeTexts) -> Self {
        Self { plan, texts }
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    #[must_use]
    pub fn texts(&self) -> &NodeTexts {
        &self.texts
    }
}
