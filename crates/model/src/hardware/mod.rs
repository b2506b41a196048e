//! What a release can drive, and whether a machine would work with it.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`coverage`] | `hardware.json` of a release: the modules of its kernel, what they drive, and the firmware that is there for them |
//! | [`in_use`] | the devices that a machine works with, as an inventory has them |
//! | [`scheme`], [`naming`] | the names that another udev would give to network cards |
//! | [`sysctl`] | the kernel settings that come with a module |
//! | [`module_trust`] | whether a kernel would load the modules of extensions; pure |
//! | [`judge`] | what a machine would lose under a release; pure |

pub mod coverage;
pub mod in_use;
pub mod judge;
pub mod module_trust;
pub mod naming;
pub mod scheme;
pub mod sysctl;

pub use coverage::{CoveredModule, CrashDumpSupport, HardwareCoverage, OutsideModule, ParseCoverageError};
pub use in_use::{DeviceInUse, HardwareInUse, NamedCard, UnboundDevice, UnboundKind};
pub use judge::{HardwareProblem, LostHardware, NamedModules, judge};
pub use module_trust::{ModuleTrust, PresentDevice};
pub use scheme::NamingScheme;
