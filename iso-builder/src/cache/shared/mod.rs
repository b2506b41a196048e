//! Steps that builders share through registries of container images: what one has made, another fetches.
//!
//! A build looks for a step that it lacks in the repositories that it reads ([`fetch`]). Of one that is there, only the list of
//! outputs comes at once; a file comes when a path to it is asked for, so that a build whose steps are all there fetches what goes onto the media and
//! not what the steps were made from. Everything is checked against its digest.
//!
//! After a build, the steps that this host has made go to the repositories that it writes ([`publish`]), and what no build has used
//! for long can be removed there ([`prune`]).
//!
//! A registry is a help and no need: without an answer a build makes everything by itself, and a step of which a file does not come is
//! [lost](super::LostStep) and made. Who may write to the repository decides
//! what its readers build; for releases that nodes check, see [`crate::cache::StepTrust`].

mod document;
mod fetch;
mod prune;
mod publish;
mod repositories;
#[cfg(test)]
mod tests;

pub(super) use self::fetch::FoundStep;
pub use self::prune::{SharedPruneSummary, prune};
pub(super) use self::publish::MadeStep;
pub use self::repositories::SharedSteps;
