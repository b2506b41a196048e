//! `installer disk-image`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::builder::TypedValueParser as _;
use serde_json::json;
use uuid::Uuid;

use crate::app::gather::{self, Media, ReleasePolicy};
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{self, UnfinishedDirectory, UnfinishedFile, named};
use base::program::Context;
use base::progress::Progress;
use base::size::ByteSize;
use install::execute::{DiskFile, ImageHost, RunEffects, Unpacking, execute};
use install::plan::{NodeTexts, Plan, SealedPlan};
use install::resolve::{SystemFetch, resolve};
use machine::inventory::{Disk, Inventory};
use model::config::disk::Transport;
use model::config::sizes::PartitionSizes;
use model::config::sources::{Document, Gathering};
use model::config::{self, InstallConfig, Profile, Role, Secret, password};
use transfer::download::RetryPolicy;

/// Write the disk of an installed node into a file, without a machine, by the plan of an install.
///
/// Machines start from copies of the file, on BIOS and on UEFI. Without --config the first start of each asks for its configuration,
/// or takes it from a volume or from kernel parameters. The file is sparse, and has the same bytes for the same medium, configuration
/// and size. Needs mkfs.ext4, debugfs and e2fsck, and no privileges.
#[derive(Debug, clap::Args)]
pub(super) struct DiskImageArgs {
    /// The install configuration of the node; disks of machines are not named in it. It is complete, as for an unattended install.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The medium to install from: an ISO, a drive that holds one, a directory with the content of one or with what a
    /// build wrote, the URL of an ISO or of a directory, or oci:DIRECTORY for a release in an OCI layout.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// The file.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The size of the disk, such as 40Gi; by default the least that the profile allows.
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// The sizes of the partitions where there is no --config, whose install.profile says them; trial unless given.
    #[arg(long, conflicts_with = "config", value_parser = clap::builder::PossibleValuesParser::new(["production", "trial"])
        .map(|word| if word == "trial" { Profile::Trial } else { Profile::Production }))]
    profile: Option<Profile>,
}

/// The namespace of the identities of disks.
const DISKS: Uuid = uuid::uuid!("5c0c6f3e-6f0c-4b5a-9d0b-6a1f2e7d9b41");

impl DiskImageArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let progress = &context.progress;
        named::refuse_standard(
            &self.output,
            "the disk",
            "it has holes and is not written from its start to its end",
        )?;
        let media = self.media(progress)?;
        media.tell_warnings(progress);
        let (plan, texts) = self.plan(&media, progress)?;
        if self.config.is_some() && has_clear_password(&media.combined.config) {
            let text = "warning: a password in clear text gets another hash each time, so the disk has other bytes each time";
            progress.note("configuration", text);
        }
        let size = plan.disk.size;
        self.write(&media, SealedPlan::new(plan, texts), progress)?;
        let output = self.output.display().to_string();
        context.show(&json!({ "path": output, "size": size.get() }), || format!("{output}: {size}"))
    }

    /// The medium, and the configuration of the file alone: nothing of the machine that makes the image gets into it.
    fn media(&self, progress: &Progress) -> Result<Media> {
        let file = gather::file(self.config.as_deref())?;
        let nothing =
            || Document::yaml(model::config::sources::SourceKind::File, "no document", "scheme_version: 1\n");
        let mut install = json!({});
        // So the checks require everything that an unattended install needs.
        if file.is_some() {
            install["automatic"] = true.into();
        }
        let profile = self.profile.or(file.is_none().then_some(Profile::Trial));
        if let Some(profile) = profile {
            install["profile"] = serde_json::to_value(profile)?;
        }
        let gathering = Gathering {
            file: file.or_else(|| Some(nothing())),
            ignore_command_line: true,
            answers: Some(Document::answers(&json!({ "install": install }))),
            ..Gathering::default()
        };
        let retry = RetryPolicy::attended();
        // iso-builder starts this during a build, with the bytes that it has just written: the release is signed afterwards. A copy of
        // the disk judges it at its first start.
        let (medium, policy) = (self.medium.as_deref(), ReleasePolicy::Any);
        let media = gather::prepare(medium, gathering, policy, retry, progress, &mut |_| {})?;
        media.require_verified()?;
        Ok(media)
    }

    fn plan(&self, media: &Media, progress: &Progress) -> Result<(Plan, NodeTexts)> {
        let config = &media.combined.config;
        refuse_other_disks(config)?;
        if media.release.containerd.unpack {
            bail!(
                Failure::new(
                    Class::Invalid,
                    "this medium has its images unpacked during the install, by containerd"
                )
                .hint("Take a medium that was built without `images.unpack`.")
            );
        }
        let sizes = PartitionSizes::of(config.install.profile);
        let least = match config.install.own_role() {
            Role::Witness => sizes.witness_minimum,
            _ => sizes.disk_minimum,
        };
        let inventory =
            Inventory { disks: vec![disk(&self.output, self.size.unwrap_or(least))], ..Inventory::default() };
        let fetch = SystemFetch::new(media.combined.authorities.clone(), RetryPolicy::default());
        let mut warn = |text| progress.note("configuration", format!("warning: {text}"));
        let config = resolve(config, &fetch, &mut warn)?;
        let config = InstallConfig { install: config::Install { device: None, ..config.install }, ..config };
        let node = match self.config {
            Some(_) => Some(config.for_node()?),
            None => None,
        };
        let text = node.as_ref().map(InstallConfig::to_yaml);
        if let Some(text) = &text {
            config::parse(text, "the node document")?;
        }
        let identity = identity(media.release.bytes(), &config, inventory.disks.first());
        let plan = install::plan::plan(&config, &inventory, &media.release, identity)?;
        let texts = NodeTexts {
            defaults: text.is_none().then(|| Secret::new(config.to_yaml())),
            document: text.map(Secret::new),
            machine_id: None,
            fleet: None,
            installed: None,
            unsigned: None,
            preflight: String::new(),
        };
        Ok((plan, texts))
    }

    /// Writes the disk beside its place, and gives it its name when it is complete.
    fn write(&self, media: &Media, sealed: SealedPlan, progress: &Progress) -> Result<()> {
        let plan = sealed.plan();
        let what = || format!("making {}", self.output.display());
        let unusable = |error| files::unusable(&self.output, error);
        let file = UnfinishedFile::begin(&self.output).map_err(unusable)?;
        let scratch = UnfinishedDirectory::begin(files::parent(&self.output)).map_err(unusable)?;
        let disk = DiskFile::new(file.file().try_clone()?, &plan.disk)?;
        let host = ImageHost::new(scratch, media.release.epoch);
        let effects = RunEffects {
            device: &disk,
            open: &|_| bail!("a disk image is one disk"),
            source: media.source.as_ref(),
            runner: &SystemRunner,
            host: &host,
            progress,
            cancel: &Cancel::on_signals(),
            unpacking: &Unpacking::of_live_system(),
        };
        execute(&sealed, &effects)?;
        disk.store()?;
        // A node document has secrets.
        let mode = if sealed.texts().document.is_some() { 0o600 } else { 0o644 };
        file.place(mode).class(Class::DiskIo, what)
    }
}

fn disk(path: &Path, size: ByteSize) -> Disk {
    Disk {
        name: "disk-image".into(),
        path: path.to_owned(),
        size,
        logical_sector: 512,
        physical_sector: 4096,
        rotational: false,
        removable: false,
        read_only: false,
        optical: false,
        transport: Transport::Other,
        model: None,
        serial: None,
        wwn: None,
        namespace: None,
        links: vec![],
        boot_medium: false,
        remote: None,
        paths: vec![],
        holders: vec![],
        signatures: vec![],
        unread: None,
        partitions: vec![],
    }
}

/// A function of the input: the same input gives the same bytes.
fn identity(manifest: &[u8], config: &InstallConfig, disk: Option<&Disk>) -> Uuid {
    let size = disk.map(|disk| disk.size.get()).unwrap_or_default();
    let whole = format!("{}\n{size}\n{}", Digest::of(manifest), config.to_yaml());
    Uuid::new_v5(&DISKS, Digest::of(whole.as_bytes()).to_string().as_bytes())
}

fn refuse_other_disks(config: &InstallConfig) -> Result<(), Failure> {
    let install = &config.install;
    let keys = [
        ("install.data_disk", install.data_disk.is_some()),
        ("install.mirror", install.mirror.is_some()),
        ("install.keep", !install.keep.is_empty()),
        ("install.wipe_all_disks", install.wipe_all_disks),
        ("install.wipe_disks_list", !install.wipe_disks_list.is_empty()),
    ];
    match keys.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((key, _)) => Err(Failure::new(
            Class::Invalid,
            format!("`{key}` has no meaning for a disk image, which is one new disk"),
        )
        .hint("Leave the key out of the configuration for this image.")),
    }
}

fn has_clear_password(config: &InstallConfig) -> bool {
    let users = config.os.users.iter().filter_map(|user| user.password.as_ref());
    let mut all = config.os.password.iter().chain(users);
    all.any(|secret| matches!(password::kind(secret.expose()), password::PasswordKind::Clear))
}
