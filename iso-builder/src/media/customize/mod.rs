//! Customizing finished media: configurations, certificates, kernel arguments and files go into an ISO, a written stick
//! or a netboot set without unpacking it, in a time that does not depend on its size.
//!
//! `medium::customization` has the content and the bytes of the area; its place and its change are here.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`gather`] | what the command line names, read and checked |
//! | [`location`] | where on a medium the two files are |
//! | [`change`] | changing them so that a power cut leaves no half configuration |
//! | [`copy`] | a changed copy of an ISO, as a file or as a stream |
//! | [`customization`] | what is in a medium, without its secrets |
//! | [`summary`] | what an install configuration on a medium is about |
//! | [`volume`] | a small volume with configurations alone |

pub mod change;
pub mod copy;
pub mod customization;
pub mod gather;
pub mod location;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod volume;

pub use customization::Customization;
pub use gather::{CustomizationSources, GatheredCustomization};
pub use location::CustomizationLocation;
pub use summary::ConfigSummary;
