//! The provenance of a release: a signed statement of what it was built from, and by what.
//!
//! It is an in-toto statement (<https://github.com/in-toto/attestation/tree/main/spec/v1>) with the predicate of SLSA's provenance
//! (<https://slsa.dev/spec/v1.0/provenance>), in a DSSE envelope ([`formats::dsse`]). Its subjects are the release manifests, from
//! which every byte of the ISOs follows but their signatures, the bill of materials, and disk images. It has no times and no names of
//! machines or people: the same inputs and programs give the same bytes.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`statement`] | the document: types for writing and reading |
//! | [`beside`] | the file beside a finished release: whether it is about it, and who has signed it |
//! | [`dependencies`] | what a lock file and a definition name, as dependencies of a build |
//! | [`public`] | which parts of paths and URLs may be told to everybody |

pub mod beside;
pub mod dependencies;
pub mod public;
pub mod statement;

pub use self::beside::{ProvenanceDescription, ReleaseProvenance};
pub use self::dependencies::FoundPackages;
pub use self::statement::{
    BUILD_TYPE, BUILDER_ID, BuildDefinition, BuilderVersion, DefinitionParameter, Dependency,
    DependencyDigest, ExternalParameters, InternalParameters, PAYLOAD_TYPE, PREDICATE_TYPE,
    ParseStatementError, Statement, Subject, TrustedKeyParameter,
};

/// The file beside a release that has its provenance.
pub use medium::build_output::PROVENANCE;
