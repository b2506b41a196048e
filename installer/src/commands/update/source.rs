//! Where a release for an update comes from.

use std::path::Path;

use anyhow::Result;

use crate::app::gather::take_proxies;
use crate::app::registries;
use base::digest::Digest;
use base::failure::{Class, Failure};
use install::execute::{SlotSource, slot_payloads};
use medium::artifact::{ArtifactReference, LAYOUT};
use medium::payload_sources::{
    Chain, JudgedRelease, LocalMedium, PayloadSource, RetryPolicy, is_url, open_release, read_release,
    require_origin, source,
};
use model::architecture::Architecture;
use model::config::InstallConfig;
use model::release::{Purpose, Release};
use model::release_manifest::ReleaseManifest;
use node::update::fetched;
use trust::{ReleaseTrust, TrustStore};

/// The hint for a release that is not verified.
const NAME_DIGEST: &str = "Use a signed release. Or give the digest: --sha256 DIGEST, or registry/name@sha256:DIGEST; or use a server with TLS. \
    Ask for the digest where the release was built: `iso-builder inspect MEDIUM` and `iso-builder push` print it, and so does \
    `installer update serve` on a node that serves it.";

/// A release for an update, opened.
#[allow(missing_debug_implementations)]
pub(super) struct OpenedRelease {
    pub(super) source: Box<dyn PayloadSource>,
    pub(super) release: ReleaseManifest,
    /// Who has signed it.
    pub(super) trust: ReleaseTrust,
    /// Whether its digest was given, so that it does not matter who sends it.
    pinned: bool,
}

impl OpenedRelease {
    /// Opens the release at `from`, with the proxies, registries and authorities of the node document, and judges it by the keys of
    /// `store`.
    pub(super) fn open(
        from: &str,
        sha256: Option<Digest>,
        config: &InstallConfig,
        store: &TrustStore,
    ) -> Result<Self> {
        take_proxies(config)?;
        if is_reference(from) {
            return Self::in_registry(from, sha256, config, store);
        }
        let source = source(Some(from), &registries::authorities(config), RetryPolicy::default())?;
        let JudgedRelease { release, trust } = read_release(source.as_ref(), sha256, store)?;
        Ok(Self { source, release, trust, pinned: sha256.is_some() })
    }

    /// Opens the fetched release, and judges it by the keys of `store`.
    ///
    /// # Errors
    /// [`Class::Invalid`] if none was.
    pub(super) fn fetched(root: &Path, sha256: Option<Digest>, store: &TrustStore) -> Result<Self> {
        let Some((directory, digest)) = fetched(root) else {
            return Err(Failure::new(Class::Invalid, "no release was fetched")
                .hint("Name one: --from MEDIUM")
                .into());
        };
        let source = LocalMedium::new(directory);
        let expected = Some(sha256.unwrap_or(digest));
        let JudgedRelease { release, trust } = read_release(&source, expected, store)?;
        Ok(Self { source: Box::new(source), release, trust, pinned: true })
    }

    /// Opens the release of `slot`, and judges it by the keys of `store`.
    pub(super) fn in_slot(slot: SlotSource, store: &TrustStore) -> Result<Self> {
        let JudgedRelease { release, trust } = read_release(&slot, None, store)?;
        Ok(Self { source: Box::new(slot), release, trust, pinned: true })
    }

    fn in_registry(
        from: &str,
        sha256: Option<Digest>,
        config: &InstallConfig,
        store: &TrustStore,
    ) -> Result<Self> {
        let reference: ArtifactReference = from.parse()?;
        let (client, _) = registries::client(config, &[])?;
        let (JudgedRelease { release, trust }, source) =
            open_release(&reference, Architecture::of_this_program(), &client, store)?;
        let digest = release.digest();
        if let Some(wanted) = sha256.filter(|wanted| *wanted != digest) {
            let what =
                format!("the release manifest of {from} has the SHA-256 {digest}, and {wanted} was wanted");
            return Err(Failure::new(Class::Verification, what)
                .hint("Name the release that was meant.")
                .into());
        }
        Ok(Self { source, release, trust, pinned: sha256.is_some() || reference.digest().is_some() })
    }

    /// Checks that the release is the one that was meant: its digest was given, trusted keys have signed it, or its sender is known.
    ///
    /// # Errors
    /// [`Class::Invalid`] if anyone on the network could have sent it.
    pub(super) fn require_verified(&self) -> Result<(), Failure> {
        if self.pinned { Ok(()) } else { require_origin(self.source.as_ref(), &self.trust, NAME_DIGEST) }
    }
}

/// Whether `from` names a release in a registry: neither a URL, a layout nor a file.
fn is_reference(from: &str) -> bool {
    let local = is_url(from) || from.starts_with(LAYOUT) || from.starts_with(['/', '.']);
    !local && !Path::new(from).exists()
}

/// The source, and the registries of the images where it does not hold all of their blobs.
pub(super) fn with_images(
    source: Box<dyn PayloadSource>,
    config: &InstallConfig,
    release: &Release,
) -> Result<Box<dyn PayloadSource>> {
    let lacks = release.payloads(Purpose::ImageBlob).any(|blob| source.place(blob).is_none());
    if !lacks {
        return Ok(source);
    }
    let registries = registries::source(config, &[], release)?;
    Ok(Box::new(Chain::new(source, vec![registries])))
}

/// Fails if the source leaves a part of the OS to another one.
pub(super) fn has_slot(source: &dyn PayloadSource, release: &Release) -> Result<()> {
    let lacks = slot_payloads(release).into_iter().find(|part| source.place(part).is_none());
    lacks.map_or(Ok(()), |part| {
        let what = format!("{} does not hold {}", source.describe(), part.path);
        Err(Failure::new(Class::Invalid, what)
            .hint("A net-install medium has no OS image. Name the full one, or the URL of the directory on its server.")
            .into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use medium::artifact::{ArtifactForm, ReleaseArtifact};
    use testing::http::{AUTHORITY, Answer, Fake, Request};
    use testing::release::release;

    /// A server with the release of the tests in a directory, with or without TLS.
    fn server(tls: bool) -> Fake {
        let answer = |request: &Request| match request.path.as_str() {
            "/release.json" => Answer::ok(&release().to_bytes()),
            _ => Answer::new(404, b""),
        };
        if tls { Fake::with_tls(answer) } else { Fake::start(answer) }
    }

    fn trusting() -> InstallConfig {
        let text = format!("system_settings: {{additional-ca: {AUTHORITY:?}}}");
        model::config::parse(&text, "node.yaml").unwrap()
    }

    #[test]
    fn a_release_over_http_is_written_only_if_its_digest_is_given() {
        let digest = Digest::of(&release().to_bytes());
        for (tls, sha256, verified) in [
            (false, None, false),
            (false, Some(digest), true),
            (true, None, true),
            (true, Some(digest), true),
        ] {
            let server = server(tls);
            let opened =
                OpenedRelease::open(&server.url(), sha256, &trusting(), &TrustStore::absent()).unwrap();
            let checked = opened.require_verified();
            assert_eq!(checked.is_ok(), verified, "{tls} {sha256:?}");
            if let Err(failure) = checked {
                assert_eq!(failure.class(), Class::Invalid);
                let text = render(&failure.into());
                assert!(text.contains(&server.url()) && text.contains("--sha256"), "{text}");
            }
        }
        let other = Some(Digest::of(b"another"));
        let error = OpenedRelease::open(&server(false).url(), other, &trusting(), &TrustStore::absent())
            .err()
            .unwrap();
        assert_eq!(class_of(&error), Class::Verification);
    }

    #[test]
    fn a_signed_release_over_http_needs_no_digest_and_an_unsigned_one_does_whatever_is_allowed() {
        use formats::minisign::SecretKey;
        use trust::{TrustedKey, UnsignedRelease, sign_release};
        let key = SecretKey::of_seed([1; 8], [1; 32]);
        let sign = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
        let when = jiff::Timestamp::UNIX_EPOCH;
        let signed = sign_release(&release(), &release().to_bytes(), when, &key.public_key(), sign).unwrap();
        let maker = TrustedKey { name: "Maker".into(), key: key.public_key(), development: false };
        let store = |unsigned| TrustStore::new(vec![maker.clone()], 1, unsigned).unwrap();
        let server = |signatures: Option<String>| {
            Fake::start(move |request: &Request| match (request.path.as_str(), &signatures) {
                ("/release.json", _) => Answer::ok(&release().to_bytes()),
                ("/release.json.minisig", Some(text)) => Answer::ok(text.as_bytes()),
                _ => Answer::new(404, b""),
            })
        };
        let (with, without) = (server(Some(signed.to_string())), server(None));
        let open =
            |server: &Fake, sha256, store| OpenedRelease::open(&server.url(), sha256, &trusting(), store);
        let refusing = store(UnsignedRelease::Refuse);
        let opened = open(&with, None, &refusing).unwrap();
        assert!(opened.require_verified().is_ok() && !opened.trust.needs_warning());
        let digest = Some(Digest::of(&release().to_bytes()));
        for sha256 in [None, digest] {
            let error = open(&without, sha256, &refusing).err().unwrap();
            assert_eq!(class_of(&error), Class::Verification);
            assert!(render(&error).contains("--allow-unsigned"), "{}", render(&error));
        }
        let allowing = store(UnsignedRelease::Allow);
        assert!(open(&without, None, &allowing).unwrap().require_verified().is_err());
        assert!(open(&without, digest, &allowing).unwrap().require_verified().is_ok());
    }

    #[test]
    fn a_release_in_a_registry_without_tls_is_written_only_if_its_digest_is_given() {
        let (release, bytes) = (release(), release().to_bytes());
        let artifact = ReleaseArtifact::new(&release, (&bytes, None), false, &[]);
        let manifest = artifact.manifest(ArtifactForm::Artifact).unwrap();
        let (pinned, digest) = (format!("@{}", Digest::of(&manifest).oci()), Digest::of(&bytes));
        let server = Fake::start(move |request| match request.path.split('?').next().unwrap_or_default() {
            "/v2/" => Answer::ok(b"{}"),
            path if path.contains("/manifests/") => Answer::ok(&manifest),
            path if path.contains("/blobs/") => Answer::range(&bytes, request),
            _ => Answer::new(404, b""),
        });
        let registries = format!(r#"{{"Mirrors": {{"os.example": {{"Endpoints": [{:?}]}}}}}}"#, server.url());
        let text = format!("system_settings: {{containerd-registry: {registries:?}}}");
        let config = model::config::parse(&text, "node.yaml").unwrap();
        let digest = Some(digest);
        for (version, sha256, verified) in
            [(":1.3.0", None, false), (":1.3.0", digest, true), (pinned.as_str(), None, true)]
        {
            let name = format!("os.example/nqrust/release{version}");
            let opened = OpenedRelease::open(&name, sha256, &config, &TrustStore::absent()).unwrap();
            assert_eq!(opened.require_verified().is_ok(), verified, "{name} {sha256:?}");
        }
    }

    #[test]
    fn what_is_no_file_and_no_url_is_a_name_in_a_registry() {
        for (from, reference) in [
            ("registry.example.com/nqrust/release:1.3.0", true),
            ("localhost:5000/release@sha256:00", true),
            ("https://example.com/nqrust.iso", false),
            ("oci:/mnt/layout:1.3.0", false),
            ("/mnt/nqrust.iso", false),
            ("./nqrust.iso", false),
        ] {
            assert_eq!(is_reference(from), reference, "{from}");
        }
    }
}
