//! The plan as the executor gets it: with the texts that the node gets, and closed to changes.

use model::config::Secret;

use super::Plan;

/// Everything that an install writes. It is made when everything is decided, and nothing of it can be changed.
#[derive(Clone, Debug)]
pub struct SealedPlan {
    plan: Plan,
    texts: NodeTexts,
}

/// Texts that the node gets beside what the plan says. Secrets are in them, and so the plan that is printed has them not.
#[derive(Clone, Debug)]
pub struct NodeTexts {
    /// The node document. Passwords are hashed in it.
    pub document: Secret,
    /// What the node keeps to tell the server of its fleet how it comes into its cluster.
    pub fleet: Option<Secret>,
    /// What the node keeps about this install, for the next one to know.
    pub installed: Secret,
    /// What the checks of the machine said, for the log.
    pub preflight: String,
}

impl SealedPlan {
    /// Closes a plan.
    #[must_use]
    pub fn new(plan: Plan, texts: NodeTexts) -> Self {
        Self { plan, texts }
    }

    /// What is done, and on which disks.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The texts that the node gets.
    #[must_use]
    pub fn texts(&self) -> &NodeTexts {
        &self.texts
    }
}
