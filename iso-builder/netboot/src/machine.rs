//! One machine: how far its deployment has come (`state`), and what is kept of it (`record`).

mod action;
mod record;
mod state;

pub use action::OperatorAction;
pub use record::{BootClient, MOST_CLIENTS, Machine, TakenTicket, described};
pub use state::{
    BootAnswer, ConfigurationFit, DeploymentEvent, DeploymentState, DiskBootReason, InstallPermission,
};

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// This server has not made it, or knows nothing more of its machine.
    Unknown,
    /// The configuration was taken, the token's time is over, or an operator has intervened since.
    Gone,
}

#[cfg(test)]
mod tests;
