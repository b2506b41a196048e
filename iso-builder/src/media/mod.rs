//! Media from their parts, and what is done with finished ones. The bytes of an ISO and of its customization area are described
//! in the crate `medium`, which the installer has too; here they are made and changed. [`pipeline`](crate::pipeline) calls
//! [`assemble`], the command line calls the others.
//!
//! | Room | What it does |
//! |---|---|
//! | [`assemble`] | writes ISOs and netboot sets from finished payloads |
//! | [`finished`] | shows what a medium says about itself, and verifies that it is true |
//! | [`customize`] | puts configurations, certificates and files into a finished medium |
//! | [`sign`] | puts signatures into finished media and brings the lists of their build up to date |
//! | [`publish`] | pushes a release to a registry or an OCI layout, and pulls it from there |

pub mod assemble;
pub mod customize;
pub mod finished;
pub mod publish;
pub mod sign;
