//! Actions of operators.

use serde::Serialize;

/// An operator's action on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorAction {
    /// It may install.
    Allow,
    /// It may not install.
    Deny,
    /// It installs again when it boots next, and loses what is on its disks.
    Redeploy,
    /// It is not listed until it asks again.
    Forget,
}

impl OperatorAction {
    /// As it stands in the paths of forms.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Redeploy => "redeploy",
            Self::Forget => "forget",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::Redeploy, Self::Forget]
            .into_iter()
            .find(|action| action.name() == name)
    }
}
