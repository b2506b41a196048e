//! One machine: the state of its deployment (`state`), and its record (`record`).

mod action;
mod record;
mod state;

pub use action::OperatorAction;
pub use record::{BootClient, MOST_CLIENTS, Machine, MachineVersion, TakenTicket, described};
pub use state::{
    BootAnswer, ConfigurationFit, DeploymentEvent, DeploymentState, DiskBootReason, InstallPermission,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// It was not made by this server, or its machine is not known any more.
    Unknown,
    /// The configuration was taken, the token has expired, or an operator has revoked it.
    Gone,
}

#[cfg(test)]
mod tests;
