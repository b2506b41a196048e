//! The input of `plan` and `install`: a medium, its manifest, and a configuration from all of its sources.

use machine::inventory::read_identity;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Result;

use super::customized::{self, Customized};
use super::registries;
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files::{named, read_text};
use base::progress::Progress;
use base::url::shown;
use install::plan::Plan;
use install::sources::{url, volume};
use machine::inventory::{Inventory, Roots};
use machine::module_trust::module_trust;
use machine::paths::{CONFIG, DEFAULTS};
use machine::trust_store;
use medium::customization::{self, Content, area};
use medium::payload_sources::BOOT_MEDIUM;
use medium::payload_sources::{
    Chain, LocalMedium, PayloadPlace, PayloadSource, VerifyingReader, expected_customization,
    expected_manifest, is_medium, is_url, judge_release, read_hardware, read_manifest, require_origin,
    served, source,
};
use model::config::sources::{
    CombinedConfig, Document, Gathering, SourceKind, SourceReader, SourceRequest, combine, gather,
    state::refusal,
};
use model::config::{Images, InstallConfig};
use model::hardware::{CrashDumpSupport, HardwareCoverage};
use model::machine::Identity;
use model::network_disks::DiskProtocol;
use model::release::{Payload, Purpose, Release};
use model::release_manifest::ReleaseManifest;
use transfer::download::RetryPolicy;
use transfer::download::proxies::{Proxies, choose};
use trust::{CustomizationTrust, ReleaseTrust, TrustStore, customization_failure, judge_customization};
use uuid::Uuid;

const COMMAND_LINE: &str = "/proc/cmdline";

pub(crate) struct Media {
    pub(crate) source: Box<dyn PayloadSource>,
    pub(crate) release: ReleaseManifest,
    /// Who has signed it.
    pub(crate) trust: ReleaseTrust,
    /// By which it was judged.
    pub(crate) policy: ReleasePolicy,
    pub(crate) combined: CombinedConfig,
    /// What the medium was customized with, if it was.
    pub(crate) customization: Option<MediumCustomization>,
    /// What the release can drive, once that was read; none if it does not say.
    pub(crate) coverage: OnceLock<Option<Arc<HardwareCoverage>>>,
}

/// The customization of a medium.
pub(crate) struct MediumCustomization {
    content: Content,
    /// SHA-256 of it.
    pub(crate) digest: Digest,
    /// Who has signed it.
    pub(crate) trust: CustomizationTrust,
}

impl MediumCustomization {
    /// That of the medium `name`, judged by the keys of `store`; none if there is nothing.
    ///
    /// # Errors
    /// [`Class::Verification`] if it must not be used.
    fn judge(content: Content, name: &str, store: &TrustStore) -> Result<Option<Self>> {
        if content.is_empty() {
            return Ok(None);
        }
        let packing = || "packing the customization".to_owned();
        let digest = Digest::of(&area::bytes(&content).class(Class::Unexpected, packing)?);
        let bytes = content.signed_bytes().class(Class::Unexpected, packing)?;
        let judged = judge_customization(&bytes, &content.signatures, store);
        let trust = judged.map_err(|error| customization_failure(error, name))?;
        Ok(Some(Self { content, digest, trust }))
    }
}

/// Which releases a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleasePolicy {
    /// Those that the keys of this system and of the owner have signed. What else there is counts as their trust stores say, or is
    /// allowed by the person at the command line.
    Trusted { allow_unsigned: bool },
    /// Whatever there is: whoever starts the command has made it.
    Any,
}

/// The argument of commands that read a release.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct UnsignedArgs {
    /// Use the release although not enough keys have signed it that this system or os.trust of the configuration trusts. A damaged
    /// signature of a trusted key is refused all the same.
    #[arg(long)]
    pub(crate) allow_unsigned: bool,
}

impl UnsignedArgs {
    pub(crate) fn policy(self) -> ReleasePolicy {
        ReleasePolicy::Trusted { allow_unsigned: self.allow_unsigned }
    }
}

impl ReleasePolicy {
    /// The keys that count for a release where there is no configuration.
    pub(crate) fn system_store(self) -> Result<TrustStore> {
        self.store(Path::new("/"), &CombinedConfig::default())
    }

    /// The keys that count for the release of a medium, on the system at `root`. What the medium itself says of trust does not count:
    /// it cannot vouch for itself.
    fn store(self, root: &Path, combined: &CombinedConfig) -> Result<TrustStore> {
        self.store_without(&[SourceKind::Defaults, SourceKind::Embedded], root, combined)
    }

    /// The same for the customization of a medium, which can have kernel arguments too.
    fn customization_store(self, root: &Path, combined: &CombinedConfig) -> Result<TrustStore> {
        let of_medium = [SourceKind::Defaults, SourceKind::Embedded, SourceKind::KernelParameters];
        self.store_without(&of_medium, root, combined)
    }

    /// The keys that count, without what these sources of the configuration say of trust.
    fn store_without(
        self,
        sources: &[SourceKind],
        root: &Path,
        combined: &CombinedConfig,
    ) -> Result<TrustStore> {
        let Self::Trusted { allow_unsigned } = self else { return Ok(TrustStore::absent()) };
        let of_medium = |key: &str| {
            let within = |path: &str| {
                path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            combined.entries.iter().any(|entry| sources.contains(&entry.source) && within(&entry.path))
        };
        let mut owner = combined.config.os.trust.clone();
        if of_medium("os.trust.keys") {
            owner.keys.clear();
        }
        owner.replace &= !of_medium("os.trust.replace");
        owner.threshold = owner.threshold.filter(|_| !of_medium("os.trust.threshold"));
        owner.unsigned = owner.unsigned.filter(|_| !of_medium("os.trust.unsigned"));
        Ok(trust_store::with_owner(root, &owner)?.allowing_unsigned(allow_unsigned))
    }
}

/// The hint for a release that is not verified.
const NAME_DIGEST: &str = "Use a signed release, serve the medium over https, or start this machine from a medium of the release: its boot menu has the \
    digest as the kernel parameter nqrust.release=sha256:DIGEST (`iso-builder inspect MEDIUM` prints it).";

impl Media {
    /// What the release can drive; none if it does not say. It is read once: its source may be far away.
    fn coverage(&self) -> Result<Option<Arc<HardwareCoverage>>> {
        if let Some(known) = self.coverage.get() {
            return Ok(known.clone());
        }
        let found = read_hardware(self.source.as_ref(), &self.release)?.map(Arc::new);
        Ok(self.coverage.get_or_init(|| found).clone())
    }

    /// Whether a node can be on a disk with several paths by its release. That of an older builder cannot.
    pub(crate) fn has_multipath(&self) -> Result<bool> {
        Ok(self.coverage()?.is_some_and(|coverage| coverage.multipath))
    }

    /// Whether a node can write crash dumps by its release. That of an older builder cannot.
    pub(crate) fn crash_dump_support(&self) -> Result<CrashDumpSupport> {
        let coverage = self.coverage()?;
        Ok(coverage.map_or(CrashDumpSupport::NoMakedumpfile, |coverage| coverage.crash_dump_support()))
    }

    /// What the release can drive, where the kernel of the machine at `roots` may refuse modules of it; none elsewhere, or if it does not
    /// say.
    pub(crate) fn judged_coverage(&self, roots: &Roots) -> Option<Arc<HardwareCoverage>> {
        module_trust(&roots.sys)?;
        self.coverage().ok().flatten()
    }

    /// The protocols by which the initrd of the release reaches disks over the network; none for that of an older builder.
    pub(crate) fn disk_protocols(&self) -> Result<Vec<DiskProtocol>> {
        Ok(self.coverage()?.map(|coverage| coverage.disk_protocols()).unwrap_or_default())
    }

    /// Checks that the release is authentic, before it is written to a disk.
    ///
    /// # Errors
    /// [`Class::Invalid`] if anyone on the network could have sent it.
    pub(crate) fn require_verified(&self) -> Result<()> {
        self.require_verified_by(expected()?)
    }

    fn require_verified_by(&self, digest: Option<Digest>) -> Result<()> {
        match digest {
            Some(_) => Ok(()),
            None => Ok(require_origin(self.source.as_ref(), &self.trust, NAME_DIGEST)?),
        }
    }

    /// Judges the release again if `config`, which is to be installed, trusts otherwise than the configuration that was found: answers
    /// can bring another one. Both have to accept it.
    pub(crate) fn judge_for(&self, config: &InstallConfig) -> Result<()> {
        if config.os.trust == self.combined.config.os.trust {
            return Ok(());
        }
        let combined = CombinedConfig { config: config.clone(), ..CombinedConfig::default() };
        let store = self.policy.store(Path::new("/"), &combined)?;
        judge_release(&self.release, &self.source.describe(), &store)?;
        if let Some(MediumCustomization { content, .. }) = &self.customization {
            MediumCustomization::judge(content.clone(), &self.source.describe(), &store)?;
        }
        Ok(())
    }

    /// The plan of an install of the release, which says so if nobody but a person on this machine answers for the release.
    pub(crate) fn plan(&self, config: &InstallConfig, inventory: &Inventory, disk: Uuid) -> Result<Plan> {
        let mut plan = install::plan::plan(config, inventory, &self.release, disk)?;
        plan.warnings.extend(self.trust_warning());
        Ok(plan)
    }

    /// What a person has to know of the origin of the release; none if trusted keys have signed it.
    pub(crate) fn trust_warning(&self) -> Option<String> {
        let product = format!("{} {}", self.release.name, self.release.version);
        self.trust.needs_warning().then(|| format!("the release {product} is {}", self.trust))
    }

    /// Reports parts of the configuration that are valid and not recommended.
    pub(crate) fn tell_warnings(&self, progress: &Progress) {
        for warning in &self.combined.warnings {
            // Its first line is enough; the excerpt is for checking a document.
            progress.warn("configuration", warning.to_string().lines().next().unwrap_or_default());
        }
    }
}

/// Opens the medium, reads its manifest, and gathers the configuration.
///
/// The medium of the live system comes first if there is one; the one that `--medium`, `install.medium` or `install.iso_url`
/// names provides what it does not hold; blobs of images that neither has come from the images' own registries.
///
/// `policy` says which releases are taken, `retry` is for media on servers. `read` is called with the configuration as soon as there is one, or with the usable part of one
/// that has mistakes: so what follows from it can be reported even if the rest fails.
pub(crate) fn prepare(
    medium: Option<&str>,
    gathering: Gathering,
    policy: ReleasePolicy,
    retry: RetryPolicy,
    progress: &Progress,
    read: &mut dyn FnMut(&InstallConfig),
) -> Result<Media> {
    let line = gathering.command_line.clone().map_or_else(kernel_command_line, Ok)?;
    let live = medium.is_none_or(is_url) && is_medium(Path::new(BOOT_MEDIUM));
    let mut machine = ThisMachine {
        medium,
        live,
        opened: None,
        custom: Content::default(),
        custom_sha256: expected_customization(&line)?,
        identity: None,
        retry,
        progress,
        read,
    };
    let gathering = Gathering { medium_at_hand: live || medium.is_some(), ..gathering };
    let mut combined = gather(gathering, &mut machine)?;
    machine.custom.add_files(&mut combined.config);
    (machine.read)(&combined.config);
    take_proxies(&combined.config)?;
    let named = medium.filter(|medium| is_url(medium)).map(str::to_owned);
    let named = named.or_else(|| configured(&combined.config));
    let named = named.as_deref();
    let open = |named: &str| source(Some(named), &combined.authorities, retry);
    let iso = iso_file(&combined.config);
    let (first, release) = match machine.opened {
        Some(opened) => opened,
        None => opened(source(named.or(iso), &combined.authorities, retry)?)?,
    };
    let is_first = |named: &&str| first.describe() == shown(named);
    let mut others: Vec<_> =
        named.filter(|named| !is_first(named)).map(open).transpose()?.into_iter().collect();
    others.retain(|second| second.describe() != first.describe());
    let trust = judge_release(&release, &first.describe(), &policy.store(Path::new("/"), &combined)?)?;
    let store = policy.customization_store(Path::new("/"), &combined)?;
    let customization = MediumCustomization::judge(machine.custom, &first.describe(), &store)?;
    let lacks = needs_registries(&combined.config, &release, first.as_ref());
    if let Some(iso) = iso.filter(|iso| others.is_empty() && !is_first(iso)) {
        if lacks {
            others.push(open(iso)?);
        } else {
            let text = format!("`install.iso_url` is not used: {} holds everything", first.describe());
            progress.note("medium", text);
        }
    }
    if lacks {
        others.push(registries::source(&combined.config, &combined.authorities, &release)?);
    }
    let source = if others.is_empty() { first } else { Box::new(Chain::new(first, others)) };
    Ok(Media { source, release, trust, policy, combined, customization, coverage: OnceLock::new() })
}

pub(crate) fn without_configuration(medium: Option<&str>, policy: ReleasePolicy) -> Result<Media> {
    let (source, release) = opened(source(medium, &[], RetryPolicy::default())?)?;
    let combined = combine(&[]).map_err(refusal)?;
    let trust = judge_release(&release, &source.describe(), &policy.store(Path::new("/"), &combined)?)?;
    Ok(Media { source, release, trust, policy, combined, customization: None, coverage: OnceLock::new() })
}

/// The input of the first start of a disk image: its own manifest and defaults in place of a medium's, and the other sources of an
/// install.
pub(crate) fn of_first_start(gathering: Gathering, progress: &Progress) -> Result<Media> {
    let source = Box::new(LocalMedium::new(CONFIG));
    let release = read_manifest(source.as_ref(), None)?;
    let mut machine = StartedImage { identity: None, progress };
    let combined = gather(Gathering { medium_at_hand: true, ..gathering }, &mut machine)?;
    take_proxies(&combined.config)?;
    // It runs already, so that refusing it for want of a signature would protect nothing. It is told and remembered.
    let policy = ReleasePolicy::Trusted { allow_unsigned: true };
    let trust = judge_release(&release, &source.describe(), &policy.store(Path::new("/"), &combined)?)?;
    Ok(Media { source, release, trust, policy, combined, customization: None, coverage: OnceLock::new() })
}

/// Sends further requests through the proxies of a configuration.
pub(crate) fn take_proxies(config: &InstallConfig) -> Result<()> {
    let named = config.proxies();
    choose(Proxies::new(named.http.as_deref(), named.https.as_deref(), named.none.as_deref())?);
    Ok(())
}

/// Whether images are needed whose blobs are not on this machine.
fn needs_registries(config: &InstallConfig, release: &Release, first: &dyn PayloadSource) -> bool {
    let mut blobs = release.payloads(Purpose::ImageBlob);
    config.install.images() == Images::Preload
        && blobs.any(|blob| first.place(blob) != Some(PayloadPlace::Here))
}

/// The medium that a configuration names: a URL or a directory. `local` is the one that the system runs from. An ISO that `iso_url`
/// names is not meant for every medium ([`iso_file`]).
fn configured(config: &InstallConfig) -> Option<String> {
    let install = &config.install;
    let iso_url = install.iso_url.as_ref().filter(|place| place.as_str() != "local" && !place.is_iso_file());
    install.medium.clone().or(iso_url.map(|place| place.as_str().to_owned()))
}

/// The URL of an ISO that the configuration names for media that lack payloads.
fn iso_file(config: &InstallConfig) -> Option<&str> {
    let install = &config.install;
    let iso = install.iso_url.as_ref().filter(|place| place.is_iso_file() && install.medium.is_none());
    iso.map(|place| place.as_str())
}

pub(crate) fn file(path: Option<&Path>) -> Result<Option<Document>> {
    let document = |path: &Path| {
        let name = named::told(path);
        let text =
            named::read_text(path).class(Class::Invalid, || format!("reading the configuration {name}"))?;
        Ok(Document::yaml(SourceKind::File, name, text))
    };
    path.map(document).transpose()
}

/// The text of a `--cmdline` argument: itself, or the content of the file that follows an `@`.
pub(crate) fn command_line(argument: &str) -> Result<String> {
    match argument.strip_prefix('@') {
        None => Ok(argument.to_owned()),
        Some(path) => {
            let path = Path::new(path);
            let what = || format!("reading the kernel parameters of {}", named::told(path));
            named::read_text(path).class(Class::Invalid, what)
        }
    }
}

pub(crate) fn kernel_command_line() -> Result<String> {
    read_text(Path::new(COMMAND_LINE))
}

/// The digest that the kernel command line requires of a manifest.
pub(crate) fn expected() -> Result<Option<Digest>> {
    expected_manifest(&kernel_command_line()?)
}

type MediumReader = (Box<dyn PayloadSource>, ReleaseManifest);

fn opened(source: Box<dyn PayloadSource>) -> Result<MediumReader> {
    let release = read_manifest(source.as_ref(), expected()?)?;
    Ok((source, release))
}

/// The sources of the machine that this process runs on.
struct ThisMachine<'a> {
    medium: Option<&'a str>,
    live: bool,
    opened: Option<MediumReader>,
    custom: Content,
    /// The SHA-256 that a kernel parameter requires of `custom.img` on a server.
    custom_sha256: Option<Digest>,
    identity: Option<Identity>,
    /// For media on servers.
    retry: RetryPolicy,
    progress: &'a Progress,
    read: &'a mut dyn FnMut(&InstallConfig),
}

impl ThisMachine<'_> {
    fn identity(&mut self) -> &Identity {
        self.identity.get_or_insert_with(|| read_identity(Path::new("/")))
    }

    /// The configuration that a customized medium has for this machine. The choice is reported with its reason.
    fn customized(&mut self, source: &dyn PayloadSource) -> Result<Option<Document>> {
        let custom = match customized::read(source, self.custom_sha256)? {
            Customized::Not => return Ok(None),
            Customized::LeftOut(why) => {
                self.progress.note("configuration", format!("warning: {why}"));
                return Ok(None);
            }
            Customized::With(custom) => custom,
        };
        let found = custom.document(self.identity())?;
        self.custom = custom;
        if let Some((told, _)) = &found {
            self.progress.note("configuration", told.as_str());
        } else if !self.custom.nodes.is_empty() {
            let identity = self.identity();
            let text = format!(
                "no configuration in {} is for this machine, which has {identity}",
                customization::FILE
            );
            self.progress.note("configuration", text);
        }
        Ok(found.map(|(_, document)| document))
    }
}

impl SourceReader for ThisMachine<'_> {
    fn medium(&mut self, url: Option<&SourceRequest>) -> Result<Vec<Document>> {
        let source: Box<dyn PayloadSource> = match url {
            Some(request) => served(&request.url, &request.authorities, self.retry)?,
            None if self.live => Box::new(LocalMedium::new(BOOT_MEDIUM)),
            None => source(self.medium, &[], self.retry)?,
        };
        let (source, release) = opened(source)?;
        let custom = self.customized(source.as_ref())?;
        let mut kinds = vec![(Purpose::InstallDefaults, SourceKind::Defaults)];
        // A customization replaces the configuration that the medium was built with.
        if custom.is_none() {
            kinds.push((Purpose::InstallConfig, SourceKind::Embedded));
        }
        let mut documents: Vec<_> = own_distribution(&release).into_iter().chain(custom).collect();
        for (purpose, kind) in kinds {
            for payload in release.payloads(purpose) {
                documents.push(document(source.as_ref(), payload, kind)?);
            }
        }
        self.opened = Some((source, release));
        Ok(documents)
    }

    fn authorities(&self) -> Vec<String> {
        self.custom.authorities.values().cloned().collect()
    }

    fn volume(&mut self) -> Result<Option<Document>> {
        let progress = self.progress;
        of_volume(&mut || self.identity().clone(), progress)
    }

    fn command_line(&mut self) -> Result<String> {
        kernel_command_line()
    }

    fn given_up(&mut self, saved: &InstallConfig) {
        (self.read)(saved);
    }

    fn fetch(&mut self, request: &SourceRequest) -> Result<Document> {
        url::fetch(request, url::retry())
    }
}

/// The sources of a machine that starts from a disk image for the first time.
struct StartedImage<'a> {
    identity: Option<Identity>,
    progress: &'a Progress,
}

impl SourceReader for StartedImage<'_> {
    /// An image holds everything, so it names no other medium.
    fn medium(&mut self, _: Option<&SourceRequest>) -> Result<Vec<Document>> {
        let path = Path::new(DEFAULTS);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = read_text(path).class(Class::DiskIo, || format!("reading {DEFAULTS}"))?;
        Ok(vec![Document::yaml(SourceKind::Defaults, DEFAULTS, text)])
    }

    fn volume(&mut self) -> Result<Option<Document>> {
        let identity = &mut self.identity;
        let mut identity = || identity.get_or_insert_with(|| read_identity(Path::new("/"))).clone();
        of_volume(&mut identity, self.progress)
    }

    fn command_line(&mut self) -> Result<String> {
        kernel_command_line()
    }

    fn fetch(&mut self, request: &SourceRequest) -> Result<Document> {
        url::fetch(request, url::retry())
    }
}

/// The document of a volume for this machine. The choice is reported.
fn of_volume(identity: &mut dyn FnMut() -> Identity, progress: &Progress) -> Result<Option<Document>> {
    let found = volume::read(&volume::VolumeRoots::default(), identity)?;
    let Some(volume::FoundDocument { document, chosen }) = found else { return Ok(None) };
    if let Some(chosen) = chosen {
        progress.note("configuration", format!("the volume has {chosen}"));
    }
    Ok(Some(document))
}

/// The distribution of the medium, for documents that name none.
fn own_distribution(release: &Release) -> Option<Document> {
    let name = release.distribution()?.name();
    let text = format!("kubernetes: {{distribution: {name}}}\n");
    Some(Document::yaml(SourceKind::Defaults, "the medium's distribution", text))
}

fn document(source: &dyn PayloadSource, payload: &Payload, kind: SourceKind) -> Result<Document> {
    let mut text = String::new();
    let mut reader = VerifyingReader::new(source.open(payload)?, payload, source.describe());
    reader.read_to_string(&mut text).class(Class::Verification, || format!("reading {}", payload.path))?;
    Ok(Document::yaml(kind, payload.path.clone(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use testing::http::{Answer, Fake};
    use testing::progress::Recorder;

    #[test]
    fn iso_url_is_medium_by_another_name_and_local_is_no_other_medium() {
        for (text, named) in [
            ("install: {iso_url: local}", None),
            ("install: {iso_url: /mnt/medium}", Some("/mnt/medium")),
            ("install: {iso_url: 'http://a/medium/'}", Some("http://a/medium/")),
            ("install: {medium: 'http://a/medium'}", Some("http://a/medium")),
            ("install: {iso_url: 'http://a/medium.iso'}", None),
            ("install: {iso_url: 'http://a/x.ISO?a=b', medium: 'http://a/medium'}", Some("http://a/medium")),
        ] {
            assert_eq!(configured(&model::config::parse(text, "f").unwrap()).as_deref(), named, "{text}");
        }
    }

    #[test]
    fn an_iso_on_a_server_is_for_media_that_lack_payloads() {
        let iso = |text: &str| iso_file(&model::config::parse(text, "f").unwrap()).map(str::to_owned);
        assert_eq!(iso("install: {iso_url: 'http://a/x.iso'}").as_deref(), Some("http://a/x.iso"));
        assert_eq!(iso("install: {iso_url: 'http://a/x.iso', medium: 'http://a/m/'}"), None);
        assert_eq!(iso("install: {iso_url: 'http://a/x/'}"), None);
    }

    #[test]
    fn without_another_medium_the_named_iso_is_the_medium() {
        let release = testing::iso::release();
        let image = testing::iso::image(&release);
        let fake = Fake::start(move |request| Answer::range(&image, request));
        let text = format!("install: {{iso_url: '{}/full.iso'}}", fake.url());
        let file = Document::yaml(SourceKind::File, "node.yaml", text);
        let gathering = Gathering { file: Some(file), ignore_command_line: true, ..Gathering::default() };
        let media = prepare(
            None,
            gathering,
            ReleasePolicy::Any,
            RetryPolicy::default(),
            &Progress::silent(),
            &mut |_| {},
        )
        .unwrap();
        assert_eq!(media.release.to_bytes(), release.to_bytes());
        assert!(media.source.describe().contains("/full.iso"), "{}", media.source.describe());
    }

    #[test]
    fn webhooks_are_told_of_though_the_medium_or_the_rest_of_the_document_will_not_do() {
        let hook = "{event: FAILED, method: POST, url: 'http://a/x'}";
        let broken = hook.replace("http:", "{{.Nothing}}");
        let nowhere = tempfile::tempdir().unwrap();
        for text in [
            format!("os: {{hostname: node-1}}\ninstall: {{webhooks: [{hook}]}}"),
            format!(
                "os: {{hostname: node-1, moduls: [x]}}\ninstall: {{webhooks: [{broken}, {hook}, {{event: X}}]}}"
            ),
        ] {
            let file = Document::yaml(SourceKind::File, "node.yaml", text);
            let gathering = Gathering { file: Some(file), ignore_command_line: true, ..Gathering::default() };
            let mut told = Vec::new();
            let read = &mut |config: &InstallConfig| told.push(config.clone());
            assert!(
                prepare(
                    nowhere.path().to_str(),
                    gathering,
                    ReleasePolicy::Any,
                    RetryPolicy::default(),
                    &Progress::silent(),
                    read
                )
                .is_err()
            );
            let [config] = &told[..] else { panic!("{told:?}") };
            assert_eq!(config.os.hostname.as_deref(), Some("node-1"));
            let urls: Vec<_> = config.install.webhooks.iter().map(|hook| &*hook.url).collect();
            assert_eq!(urls, ["http://a/x"]);
        }
    }

    /// A medium that was built with a configuration, and its customization.
    fn medium(area: Option<&[u8]>) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: &str, bytes: &[u8]| {
            base::files::write_atomically(&directory.path().join(path), bytes, 0o644).unwrap();
        };
        let text = b"os: {hostname: built}\n";
        let payload = Payload {
            path: "config/install.yaml".into(),
            purpose: Purpose::InstallConfig,
            size: text.len() as u64,
            sha256: base::digest::Digest::of(text),
        };
        let release = Release {
            format: model::release::FORMAT,
            id: "sample".into(),
            name: "Sample".into(),
            version: "1".into(),
            rollback_index: model::rollback_index::RollbackIndex::default(),
            architecture: model::architecture::Architecture::Amd64,
            epoch: 0,
            medium: model::release::MediumKind::Full,
            kernel: "6.1".into(),
            kernel_arguments: Vec::new(),
            expanded: model::release::ExpandedImage { size: 0, root_hash: Digest::of(b"") },
            payloads: vec![payload],
            images: Vec::new(),
            containerd: model::release::Containerd::default(),
            distribution: None,
            kubernetes: None,
            iso: None,
        };
        put("config/install.yaml", text);
        put(model::release::MANIFEST, &release.to_bytes());
        if let Some(area) = area {
            put(customization::FILE, area);
        }
        directory
    }

    fn content(name: &str) -> Content {
        let nodes = [(name.to_owned(), model::config::Secret::new("os: {hostname: customized}\n"))].into();
        let authorities = [("own.pem".to_owned(), "a certificate".to_owned())].into();
        Content { nodes, authorities, ..Content::default() }
    }

    /// The names of the documents of the medium, and which authorities came with it.
    fn asked(medium: &tempfile::TempDir) -> Result<(Vec<String>, Vec<String>)> {
        let (progress, read) = (Progress::silent(), &mut |_: &InstallConfig| {});
        let mut machine = ThisMachine {
            medium: medium.path().to_str(),
            live: false,
            opened: None,
            custom: Content::default(),
            custom_sha256: None,
            identity: Some(Identity { serial: Some("CZ12".into()), ..Identity::default() }),
            retry: RetryPolicy::default(),
            progress: &progress,
            read,
        };
        let documents = machine.medium(None)?;
        Ok((documents.iter().map(|document| document.name().to_owned()).collect(), machine.authorities()))
    }

    #[test]
    fn what_a_medium_was_customized_with_stands_in_place_of_what_it_was_built_with() {
        let built = "config/install.yaml";
        let blank = vec![0; customization::area::HEADER];
        let trusted = || vec!["a certificate".to_owned()];
        let bytes = |name| customization::area::bytes(&content(name)).unwrap();
        for (area, name, authorities) in [
            (None, built, Vec::new()),
            (Some(blank), built, Vec::new()),
            (Some(bytes("default.yaml")), "custom.img:/nodes/default.yaml", trusted()),
            (Some(bytes("serial-CZ12.yaml")), "custom.img:/nodes/serial-CZ12.yaml", trusted()),
            (Some(bytes("serial-other.yaml")), built, trusted()),
        ] {
            let found = asked(&medium(area.as_deref())).unwrap();
            assert_eq!(found, (vec![name.to_owned()], authorities));
        }
    }

    #[test]
    fn a_node_runs_the_distribution_of_its_medium_unless_a_document_says_otherwise() {
        use model::config::Distribution::{K3s, Kubeadm};
        for (text, runs) in [("token: a", Kubeadm), ("kubernetes: {distribution: k3s}", K3s)] {
            let directory = medium(None);
            let manifest = directory.path().join(model::release::MANIFEST);
            let mut release = Release::parse(&std::fs::read(&manifest).unwrap()).unwrap();
            release.distribution = Some(Kubeadm);
            std::fs::write(&manifest, release.to_bytes()).unwrap();
            let file = Document::yaml(SourceKind::File, "node.yaml", text.to_owned());
            let gathering = Gathering { file: Some(file), ignore_command_line: true, ..Gathering::default() };
            let media = prepare(
                directory.path().to_str(),
                gathering,
                ReleasePolicy::Any,
                RetryPolicy::default(),
                &Progress::silent(),
                &mut |_| {},
            )
            .unwrap();
            assert_eq!(media.combined.config.kubernetes.distribution(), runs, "{text}");
        }
    }

    #[test]
    fn a_damaged_customization_ends_the_install_and_is_not_passed_over() {
        let mut damaged = customization::area::bytes(&content("default.yaml")).unwrap();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        let short = &damaged[..last];
        for area in [&damaged[..], short, &customization::area::unfinished()[..], b"GARBAGE"] {
            let error = asked(&medium(Some(area))).unwrap_err();
            assert_eq!(base::failure::class_of(&error), base::failure::Class::Verification);
            let text = base::failure::render(&error);
            assert!(
                text.contains("reading custom.img") && text.contains("next: Run `iso-builder customize`"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_customization_is_used_if_the_system_takes_any_or_a_key_that_it_trusts_has_signed_it() {
        use formats::minisign::SecretKey;
        use trust::{CustomizationPolicy, TrustedKey, UnsignedRelease, sign_customization};
        let key = SecretKey::of_seed([1; 8], [1; 32]);
        let trusted = TrustedKey { name: "Site".into(), key: key.public_key(), development: false };
        let store = |policy| {
            let store = TrustStore::new(vec![trusted.clone()], 1, UnsignedRelease::Refuse).unwrap();
            store.customized_by(policy)
        };
        let unsigned = content("default.yaml");
        let sign = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
        let bytes = unsigned.signed_bytes().unwrap();
        let signature =
            sign_customization(&bytes, jiff::Timestamp::UNIX_EPOCH, &key.public_key(), sign).unwrap();
        let signed = Content { signatures: vec![signature], ..unsigned.clone() };
        let changed = Content { signatures: signed.signatures.clone(), ..content("serial-CZ12.yaml") };
        for (content, any, demanded) in [
            (&Content::default(), Some(None), Some(None)),
            (&unsigned, Some(Some("added by its holder, not signed")), None),
            (&signed, Some(Some("signed by Site")), Some(Some("signed by Site"))),
            (&changed, None, None),
        ] {
            for (policy, expected) in
                [(CustomizationPolicy::Any, any), (CustomizationPolicy::Signed, demanded)]
            {
                match (MediumCustomization::judge(content.clone(), "x.iso", &store(policy)), expected) {
                    (Ok(found), Some(text)) => {
                        let found = found.map(|custom| custom.trust.to_string());
                        assert_eq!(found.is_some(), text.is_some());
                        assert!(found.unwrap_or_default().starts_with(text.unwrap_or_default()));
                    }
                    (Err(error), None) => {
                        assert_eq!(base::failure::class_of(&error), base::failure::Class::Verification);
                    }
                    (found, expected) => panic!("{policy:?} {expected:?} {}", found.is_ok()),
                }
            }
        }
    }

    #[test]
    fn a_medium_over_http_brings_files_only_with_the_digest_of_what_it_was_customized_with() {
        let file = customization::content::File { mode: 0o644, bytes: b"* * * * * root x".to_vec() };
        let content = Content { files: [("etc/cron.d/x".to_owned(), file)].into(), ..Content::default() };
        let area = customization::area::bytes(&content).unwrap();
        let digest = format!("quiet nqrust.custom={}", Digest::of(&area).oci());
        let directory = medium(Some(&area));
        let root = directory.path().to_owned();
        let server = Fake::start(move |request| {
            match std::fs::read(root.join(request.path.trim_start_matches('/'))) {
                Ok(bytes) => Answer::ok(&bytes),
                Err(_) => Answer::new(404, b""),
            }
        });
        for (line, files, warnings) in [("quiet", 0, 1), (&*digest, 1, 0)] {
            let recorder = Recorder::default();
            let progress = Progress::new(vec![Box::new(recorder.clone())]);
            let document = Document::yaml(SourceKind::File, "node.yaml", "os: {hostname: node-1}".to_owned());
            let (file, command_line) = (Some(document), Some(line.to_owned()));
            let gathering = Gathering { file, command_line, ..Gathering::default() };
            let media = prepare(
                Some(&server.url()),
                gathering,
                ReleasePolicy::Any,
                RetryPolicy::default(),
                &progress,
                &mut |_| {},
            )
            .unwrap();
            assert_eq!(media.combined.config.os.write_files.len(), files, "{line}");
            let error = media.require_verified_by(None).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid);
            let text = render(&error);
            assert!(text.contains("not authenticated") && text.contains("nqrust.release="), "{text}");
            media.require_verified_by(Some(Digest::of(b"the release"))).unwrap();
            let told = recorder.0.lock().unwrap().clone();
            let told: Vec<_> = told.iter().filter(|event| event.message.contains("left out")).collect();
            assert_eq!(told.len(), warnings, "{told:?}");
            assert!(told.iter().all(|event| event.message.contains("nqrust.custom=sha256:")), "{told:?}");
        }
    }

    #[test]
    fn a_configuration_of_answers_that_refuses_the_release_is_heard() {
        let directory = medium(None);
        let text = "os: {hostname: node-1}".to_owned();
        let file = Some(Document::yaml(SourceKind::File, "node.yaml", text));
        let gathering = Gathering { file, ignore_command_line: true, ..Gathering::default() };
        let policy = ReleasePolicy::Trusted { allow_unsigned: false };
        let (progress, retry) = (Progress::silent(), RetryPolicy::default());
        let media =
            prepare(directory.path().to_str(), gathering, policy, retry, &progress, &mut |_| {}).unwrap();
        assert!(media.trust_warning().unwrap().ends_with("is not signed"));
        media.judge_for(&media.combined.config).unwrap();
        let answered = model::config::parse("os: {trust: {unsigned: refuse}}", "f").unwrap();
        assert_eq!(class_of(&media.judge_for(&answered).unwrap_err()), Class::Verification);
        let allowed = Media { policy: ReleasePolicy::Trusted { allow_unsigned: true }, ..media };
        allowed.judge_for(&answered).unwrap();
    }

    #[test]
    fn a_medium_cannot_vouch_for_itself() {
        use trust::UnsignedRelease::{Allow, Refuse};
        const KEY: &str = "RWS/9ctmCd5dymmCZ0bSE20lzB7fGTj6II2J+ZTwzcqbHpCwTX+uBnxY";
        let root = tempfile::tempdir().unwrap();
        let file = machine::paths::below(root.path(), trust::store::TRUST_STORE);
        let image = trust::TrustStore::new(Vec::new(), 1, Refuse).unwrap();
        base::files::write_atomically(&file, &image.to_bytes(), 0o644).unwrap();
        let store = |documents: &[(SourceKind, &str)], allow_unsigned| {
            let document = |(kind, text): &(SourceKind, &str)| Document::yaml(*kind, "a document", *text);
            let documents: Vec<_> = documents.iter().map(document).collect();
            let combined = combine(&documents).unwrap();
            let store = ReleasePolicy::Trusted { allow_unsigned }.store(root.path(), &combined).unwrap();
            (store.keys().len(), store.unsigned())
        };
        let allow = "os: {trust: {unsigned: allow}}";
        let keys = format!("os: {{trust: {{keys: [{{name: Owner, key: {KEY}}}]}}}}");
        for kind in [SourceKind::Defaults, SourceKind::Embedded] {
            assert_eq!(store(&[(kind, allow)], false), (0, Refuse));
            assert_eq!(store(&[(kind, &keys)], false), (0, Refuse));
            assert_eq!(store(&[(kind, allow)], true), (0, Allow));
            // Of two documents the one that is not on the medium counts.
            assert_eq!(store(&[(kind, &keys), (SourceKind::File, allow)], false), (0, Allow));
            assert_eq!(store(&[(kind, allow), (SourceKind::File, &keys)], false), (1, Refuse));
        }
        for kind in [SourceKind::Volume, SourceKind::Url, SourceKind::File, SourceKind::KernelParameters] {
            assert_eq!(store(&[(kind, allow)], false), (0, Allow));
            assert_eq!(store(&[(kind, &keys)], false), (1, Refuse));
            // A customization has kernel arguments.
            let combined = combine(&[Document::yaml(kind, "a document", keys.as_str())]).unwrap();
            let policy = ReleasePolicy::Trusted { allow_unsigned: false };
            let found = policy.customization_store(root.path(), &combined).unwrap().keys().len();
            assert_eq!(found, usize::from(kind != SourceKind::KernelParameters), "{kind}");
        }
    }
}
