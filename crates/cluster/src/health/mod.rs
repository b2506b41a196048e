//! The health of this node: checks of the machine, its network and its part in a cluster, and the verdict on a boot, compared with
//! the results from before the restart.
//!
//! | Module | What it does |
//! |---|---|
//! | [`check`] | the registry of checks, and their results |
//! | [`probe`] | the seam to the machine |
//! | [`node_probe`] | the machine itself; `local`, `network`, `kubernetes` and [`own_checks`] make its checks |
//! | [`baseline`] | the results from before the restart |
//! | [`judge`] | from observations in time to the verdict: a state machine without effects |
//! | `timing` | how long a boot has until it has to be good |
//! | [`watch`] | observes until there is a verdict |
//!
//! Nothing here changes the node or its boot record; who asks for a verdict does.

pub mod baseline;
pub mod check;
pub mod judge;
mod kubernetes;
mod local;
mod network;
pub mod node_probe;
pub mod own_checks;
pub mod probe;
mod timing;
pub mod watch;

pub use baseline::{BASELINE, Baseline};
pub use check::{CHECKS, CheckClass, CheckGroup, CheckResult, Finding, HealthCheck};
pub use judge::{BootVerdict, Complaint, FailedCheck, Judge};
pub use node_probe::NodeProbe;
pub use probe::{HealthProbe, Observation};
pub use timing::Timing;
pub use watch::{all_required_hold, current, observe_until_verdict, take_baseline};
