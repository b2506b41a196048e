//! Actions of operators.

use schemars::JsonSchema;
use serde::Serialize;

/// An operator's action on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorAction {
    Allow,
    Deny,
    /// It installs again when it boots next, and loses what is on its disks.
    Redeploy,
    /// It is not listed until it asks again.
    Forget,
}

base::names!(OperatorAction { Allow = "allow", Deny = "deny", Redeploy = "redeploy", Forget = "forget" });

impl OperatorAction {
    /// The word on a button.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
            Self::Redeploy => "Redeploy",
            Self::Forget => "Forget",
        }
    }
}
