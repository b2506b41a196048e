//! The plan as the executor gets it: with the texts for the node, and closed to changes.

use machine::unsigned_record::UnsignedRecord;
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
    /// The node document, with passwords hashed. `None` if the first start asks for it.
    pub document: Option<Secret>,
    /// What a first start that asks for the document begins with.
    pub defaults: Option<Secret>,
    /// The machine id, machine-id(5). `None` if the disk is one that machines start from copies of: each gives itself one.
    pub machine_id: Option<String>,
    /// What the node needs to report to its fleet server.
    pub fleet: Option<Secret>,
    /// The record of this install, for the next one to compare with. Copies of a disk have none.
    pub installed: Option<Secret>,
    /// The record that the release is not signed; `None` for a signed one, and for disks that machines start from copies of.
    pub unsigned: Option<UnsignedRecord>,
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
