//! Who has signed a release, and whether that is enough for the one who is about to use it.
//!
//! A signature is over the bytes of `release.json`. Everything else of a release follows from the digests in it, so nothing else
//! needs one. This crate reads no files and holds no keys: [`judge()`] is a function of a manifest, the signatures beside it,
//! and a [`TrustStore`], which a node extends with its [`TrustMemory`].
//!
//! | Module | What it knows |
//! |---|---|
//! | [`store`] | the keys that a system trusts, how many of them have to sign, and what becomes of unsigned releases |
//! | [`customization`] | the same for the customization of a medium |
//! | [`provenance`] | the same for the provenance of a release |
//! | [`memory`] | what a system remembers beyond the release that it runs: the lowest rollback index, and what was revoked |
//! | [`revocations`] | keys and releases that were taken back |
//! | [`statement`] | what a signature says of a release in its trusted comment |
//! | [`judge`](mod@judge) | whether a release may be used, and the reason if not |

pub mod customization;
pub mod judge;
pub mod memory;
pub mod provenance;
pub mod revocations;
pub mod statement;
pub mod store;
#[cfg(test)]
mod tests;

pub use customization::{CustomizationTrust, customization_failure, judge_customization, sign_customization};
pub use judge::{DocumentError, ReleaseTrust, Signer, TrustError, UnsignedReason, judge};
pub use memory::{ParseTrustMemoryError, TrustMemory};
pub use model::config::{CustomizationPolicy, UnsignedRelease};
pub use provenance::{judge_provenance, provenance_failure};
pub use revocations::Revocations;
pub use statement::sign_release;
pub use store::{ParseTrustStoreError, TrustStore, TrustedKey};
