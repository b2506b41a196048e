//! The statement: an in-toto Statement v1 whose predicate is SLSA's provenance v1.
//!
//! Fields that later versions add, here or in the specifications, are ignored when it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base::digest::Digest;
use formats::dsse::{Envelope, ParseEnvelopeError};
use formats::minisign::{KeyId, PublicKey};
use serde::{Deserialize, Serialize};
use trust::TrustedKey;

use crate::definition::OutputKind;

/// The executable of the process that reads it.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The type of an envelope's payload that is a statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The type of the statement.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of its predicate.
pub const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// How the parameters are to be read: a tag (RFC 4151), which names a thing and no place to fetch it from.
/// `docs/reference/provenance.md` describes it.
pub const BUILD_TYPE: &str = "tag:nqrust.io,2026:iso-builder/build/v1";
/// Who answers for the build: this program, wherever it runs.
pub const BUILDER_ID: &str = "tag:nqrust.io,2026:iso-builder";

/// What was built, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    #[serde(rename = "_type")]
    statement_type: String,
    /// Sorted by name.
    pub subject: Vec<Subject>,
    predicate_type: String,
    pub predicate: Predicate,
}

/// A file that the build made: `release.json`, `NAME-net-install.iso/release.json` for the manifest within that ISO,
/// `sbom.spdx.json`, or the name of a disk image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    pub name: String,
    digest: Sha256,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Sha256 {
    sha256: Digest,
}

/// SLSA's provenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Predicate {
    pub build_definition: BuildDefinition,
    pub run_details: RunDetails,
}

/// Everything that the outputs follow from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildDefinition {
    build_type: String,
    pub external_parameters: ExternalParameters,
    pub internal_parameters: InternalParameters,
    /// Sorted.
    pub resolved_dependencies: Vec<Dependency>,
}

/// What the caller of the build chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalParameters {
    pub definition: DefinitionParameter,
    pub lock: LockParameter,
    /// The outputs that lie beside the statement, sorted.
    pub outputs: Vec<OutputKind>,
    /// The keys that the OS image trusts, where the definition names none: those that signed the build.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_keys: Vec<TrustedKeyParameter>,
}

/// The image definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionParameter {
    /// Relative to the directory that the build was started in, if it was below that; otherwise only the name. `-` for standard
    /// input.
    pub path: String,
    pub sha256: Digest,
    /// Which of its variants was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// The lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockParameter {
    pub sha256: Digest,
}

/// A key of the trust store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedKeyParameter {
    pub id: KeyId,
    pub name: String,
    pub key: PublicKey,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub development: bool,
}

/// What the builder and its host chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternalParameters {
    /// The time stamp of everything in the media, in seconds since 1970.
    pub epoch: u64,
    /// The versions of the host's programs that make parts of the outputs, by name.
    pub tools: BTreeMap<String, String>,
    /// The repositories from which steps came that other hosts had made, sorted.
    #[serde(default, rename = "sharedSteps", skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_steps: BTreeSet<String>,
}

/// An input: a resource descriptor of in-toto.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// The name of a file, the reference of an image, or a path as the definition writes it.
    pub name: String,
    /// The package URL, as the bill of materials has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Where it was downloaded from, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_location: Option<String>,
    pub digest: DependencyDigest,
}

/// The digest of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DependencyDigest {
    /// SHA-256 of the bytes of a file.
    #[serde(rename = "sha256")]
    File(Digest),
    /// SHA-256 over the names, kinds, contents and execute bits of a directory: [`digest_of_path`](crate::files::digest_of_path). For a
    /// base that is a directory, what the lock file has for it.
    #[serde(rename = "nqrustDirectory")]
    Directory(Digest),
}

/// What ran the build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDetails {
    pub builder: Builder,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Builder {
    pub id: String,
    pub version: BuilderVersion,
}

/// The program that built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuilderVersion {
    #[serde(rename = "iso-builder")]
    pub iso_builder: String,
    /// Of its executable.
    pub sha256: Digest,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseStatementError {
    #[error(transparent)]
    Envelope(#[from] ParseEnvelopeError),
    #[error("its payload is not an in-toto statement: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its {field} is {found:?}, and this program reads {expected}")]
    Kind { field: &'static str, found: String, expected: &'static str },
}

impl BuilderVersion {
    /// That of the program that runs, even if its file was replaced. `digest` gives the digest of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_this_program(digest: impl FnOnce(&Path) -> anyhow::Result<Digest>) -> anyhow::Result<Self> {
        let sha256 = digest(Path::new(THIS_PROGRAM))?;
        Ok(Self { iso_builder: env!("CARGO_PKG_VERSION").to_owned(), sha256 })
    }
}

impl Subject {
    #[must_use]
    pub fn new(name: impl Into<String>, sha256: Digest) -> Self {
        Self { name: name.into(), digest: Sha256 { sha256 } }
    }

    #[must_use]
    pub fn sha256(&self) -> Digest {
        self.digest.sha256
    }
}

impl From<&TrustedKey> for TrustedKeyParameter {
    fn from(TrustedKey { name, key, development }: &TrustedKey) -> Self {
        Self { id: key.id(), name: name.clone(), key: *key, development: *development }
    }
}

impl BuildDefinition {
    #[must_use]
    pub fn new(
        external_parameters: ExternalParameters,
        internal_parameters: InternalParameters,
        mut resolved_dependencies: Vec<Dependency>,
    ) -> Self {
        resolved_dependencies.sort();
        resolved_dependencies.dedup();
        let build_type = BUILD_TYPE.to_owned();
        Self { build_type, external_parameters, internal_parameters, resolved_dependencies }
    }
}

impl Statement {
    #[must_use]
    pub fn new(
        mut subject: Vec<Subject>,
        build_definition: BuildDefinition,
        version: BuilderVersion,
    ) -> Self {
        subject.sort();
        let builder = Builder { id: BUILDER_ID.to_owned(), version };
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate { build_definition, run_details: RunDetails { builder } },
        }
    }

    /// The statement in an envelope that nobody has signed.
    #[must_use]
    pub fn to_envelope(&self) -> Envelope {
        Envelope::new(PAYLOAD_TYPE, base::encode::json_line(self))
    }

    /// The statement in `envelope`, whose signatures are not looked at.
    ///
    /// # Errors
    /// It is another document, or that of another kind of build.
    pub fn of_envelope(envelope: &Envelope) -> Result<Self, ParseStatementError> {
        let check = |field, found: &str, expected| match found == expected {
            true => Ok(()),
            false => Err(ParseStatementError::Kind { field, found: found.to_owned(), expected }),
        };
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(rename = "_type")]
            statement_type: String,
            predicate_type: String,
            predicate: PredicateKind,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PredicateKind {
            build_definition: BuildKind,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct BuildKind {
            build_type: String,
        }
        check("payloadType", envelope.payload_type(), PAYLOAD_TYPE)?;
        // The kind first: the fields of another one would only give a message about what is missing.
        let kind: Kind = serde_json::from_slice(envelope.payload())?;
        check("_type", &kind.statement_type, STATEMENT_TYPE)?;
        check("predicateType", &kind.predicate_type, PREDICATE_TYPE)?;
        check("buildType", &kind.predicate.build_definition.build_type, BUILD_TYPE)?;
        Ok(serde_json::from_slice(envelope.payload())?)
    }

    /// The statement in the bytes of an envelope, whose signatures are not looked at.
    ///
    /// # Errors
    /// As of [`Self::of_envelope`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseStatementError> {
        Self::of_envelope(&Envelope::parse(bytes)?)
    }

    /// What the statement says of the file `name`; none if it is no subject.
    #[must_use]
    pub fn subject(&self, name: &str) -> Option<Digest> {
        self.subject.iter().find(|subject| subject.name == name).map(Subject::sha256)
    }

    /// True if a file with this digest is a subject, whatever its name.
    #[must_use]
    pub fn is_about(&self, sha256: Digest) -> bool {
        self.subject.iter().any(|subject| subject.sha256() == sha256)
    }

    #[must_use]
    pub fn build(&self) -> &BuildDefinition {
        &self.predicate.build_definition
    }

    /// The program that built.
    #[must_use]
    pub fn builder(&self) -> &BuilderVersion {
        &self.predicate.run_details.builder.version
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    /// A statement with every kind of field, about `subject`.
    pub(crate) fn statement(subject: Vec<Subject>) -> Statement {
        let digest = |text: &str| Digest::of(text.as_bytes());
        let key = formats::minisign::SecretKey::of_seed([1; 8], [1; 32]).public_key();
        let trusted = TrustedKey { name: "releases".into(), key, development: true };
        let external = ExternalParameters {
            definition: DefinitionParameter {
                path: "image.yaml".into(),
                sha256: digest("definition"),
                variant: None,
            },
            lock: LockParameter { sha256: digest("lock") },
            outputs: vec![OutputKind::Full, OutputKind::DiskQcow2],
            trusted_keys: vec![TrustedKeyParameter::from(&trusted)],
        };
        let internal = InternalParameters {
            epoch: 1_700_000_000,
            tools: [("tar".to_owned(), "tar (GNU tar) 1.35".to_owned())].into(),
            shared_steps: BTreeSet::new(),
        };
        let dependencies = vec![
            Dependency {
                name: "libc6_2.41-12_amd64.deb".into(),
                uri: Some("pkg:deb/debian/libc6@2.41-12?arch=amd64".into()),
                download_location: Some("https://deb.example.org/pool/libc6_2.41-12_amd64.deb".into()),
                digest: DependencyDigest::File(digest("libc6")),
            },
            Dependency {
                name: "layout".into(),
                uri: None,
                download_location: None,
                digest: DependencyDigest::Directory(digest("layout")),
            },
        ];
        let version = BuilderVersion { iso_builder: "1.0.0".into(), sha256: digest("builder") };
        Statement::new(subject, BuildDefinition::new(external, internal, dependencies), version)
    }

    fn sample() -> Statement {
        let subject = |name: &str| Subject::new(name, Digest::of(name.as_bytes()));
        statement(vec![subject("sbom.spdx.json"), subject("release.json")])
    }

    fn value(statement: &Statement) -> Value {
        serde_json::from_slice(statement.to_envelope().payload()).unwrap()
    }

    fn parse(value: &Value) -> Result<Statement, ParseStatementError> {
        Statement::of_envelope(&Envelope::new(PAYLOAD_TYPE, value.to_string().into_bytes()))
    }

    #[test]
    fn a_statement_reads_back_and_fields_of_others_are_ignored() {
        assert_eq!(Statement::parse(&sample().to_envelope().to_line()).unwrap(), sample());
        let mut more = value(&sample());
        more["predicate"]["runDetails"]["metadata"] = json!({ "invocationId": "x" });
        more["predicate"]["buildDefinition"]["resolvedDependencies"][0]["annotations"] = json!({});
        more["subject"][0]["digest"]["sha512"] = "00".into();
        assert_eq!(parse(&more).unwrap(), sample());
    }

    #[test]
    fn the_order_in_which_inputs_are_found_is_no_difference() {
        let build = sample().build().clone();
        let BuildDefinition { external_parameters, internal_parameters, mut resolved_dependencies, .. } =
            build;
        resolved_dependencies.reverse();
        resolved_dependencies.extend_from_within(..1);
        let build = BuildDefinition::new(external_parameters, internal_parameters, resolved_dependencies);
        let subject = sample().subject.into_iter().rev().collect();
        let other = Statement::new(subject, build, sample().builder().clone());
        assert_eq!(other.to_envelope().to_line(), sample().to_envelope().to_line());
    }

    #[test]
    fn another_kind_of_document_is_named() {
        for (at, field) in [
            ("/_type", "_type"),
            ("/predicateType", "predicateType"),
            ("/predicate/buildDefinition/buildType", "buildType"),
        ] {
            let mut other = value(&sample());
            *other.pointer_mut(at).unwrap() = "https://example.org/v2".into();
            let error = parse(&other).unwrap_err().to_string();
            assert!(error.contains(&format!("its {field} is \"https://example.org/v2\"")), "{error}");
        }
        let payload = sample().to_envelope().payload().to_vec();
        assert!(Statement::of_envelope(&Envelope::new("text/plain", payload)).is_err());
        assert!(parse(&json!({})).is_err());
    }

    #[test]
    fn the_document_has_the_shape_that_the_specifications_demand() {
        let document = value(&sample());
        let names: Vec<_> = document["subject"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["release.json", "sbom.spdx.json"]);
        assert_shape(&document);
    }

    /// What in-toto's statement v1 and SLSA's provenance v1 demand of a document: types, required fields, resource descriptors.
    pub(crate) fn assert_shape(document: &Value) {
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let own = ["_type", "predicate", "predicateType", "subject"];
        assert_eq!(keys(document), own.map(str::to_owned).into());
        assert_eq!(document["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(document["predicateType"], "https://slsa.dev/provenance/v1");
        let subjects = document["subject"].as_array().unwrap();
        assert!(!subjects.is_empty());
        let build = &document["predicate"]["buildDefinition"];
        let dependencies = build["resolvedDependencies"].as_array().unwrap();
        for descriptor in subjects.iter().chain(dependencies) {
            let known = ["name", "uri", "digest", "downloadLocation"];
            assert!(keys(descriptor).iter().all(|key| known.contains(&key.as_str())), "{descriptor}");
            assert!(descriptor["name"].as_str().is_some_and(|name| !name.is_empty()), "{descriptor}");
            let digests = descriptor["digest"].as_object().unwrap();
            assert_eq!(digests.len(), 1, "{descriptor}");
            for (algorithm, digest) in digests {
                assert!(["sha256", "nqrustDirectory"].contains(&algorithm.as_str()), "{descriptor}");
                let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                assert!(
                    digest.as_str().is_some_and(|text| text.len() == 64 && text.bytes().all(hexadecimal))
                );
            }
        }
        assert!(subjects.iter().all(|subject| subject["digest"]["sha256"].is_string()));
        // A TypeURI has a scheme (RFC 3986, section 3.1).
        let uri = |value: &Value| value.as_str().is_some_and(|text| text.split_once(':').is_some());
        assert!(uri(&build["buildType"]) && uri(&document["predicate"]["runDetails"]["builder"]["id"]));
        assert!(build["externalParameters"].is_object() && build["internalParameters"].is_object());
        let versions = document["predicate"]["runDetails"]["builder"]["version"].as_object().unwrap();
        assert!(versions.values().all(Value::is_string), "a map of texts");
    }
}
