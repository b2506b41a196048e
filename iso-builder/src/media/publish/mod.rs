//! Releases on their way: pushed to a registry or into an OCI layout, and pulled from there. [`medium::artifact`] describes
//! their form there.

mod fetch;
#[cfg(test)]
mod hostile_sizes;
mod iso;
mod patches;
mod pull;
mod push;
mod target;
#[cfg(test)]
mod tests;

pub use patches::PATCHES_MAX;
pub use pull::{PullReport, pull};
pub use push::{PushReport, push, pushed_media};
