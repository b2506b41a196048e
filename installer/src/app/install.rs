//! One install on this machine, from a complete configuration to the end of the executor.
//!
//! `installer install` calls it for an unattended install, [`super::questions`] for one with answers from the console.

use std::path::Path;

use anyhow::Result;

use super::finished_nodes::{self, UntouchedNodes};
use super::fitness;
use super::gather::{Media, kernel_command_line};
use super::report::RunRecord;
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::failure::{Class, Classify};
use base::progress::Progress;
use cluster::configuration::ClusterMember;
use cluster::join_query::pin;
use install::execute::{DOCUMENT, OpenDisk, RunEffects, SystemHost, Unpacking, execute, take_down, take_up};
use install::installed::decide::words;
use install::installed::{InstallRecord, ReinstallDecision, decide};
use install::late_devices::scan_complete;
use install::plan::{AfterInstall, NodeTexts, SealedPlan};
use install::resolve::{SystemFetch, resolve};
use machine::inventory::{Disk, Inventory, Roots};
use machine::live::multipath::join_paths;
use machine::live::network_disks::connect_disks;
use machine::live::{is_live, set_up_network};
use machine::machine_id::MachineId;
use machine::network_disks::connect::SystemPace;
use machine::unsigned_record::UnsignedRecord;
use model::config::{self, InstallConfig, Secret};
use preflight::PlannedNode;
use transfer::download::RetryPolicy;

#[allow(clippy::large_enum_variant)]
pub(crate) enum InstallEnd {
    /// The node is installed; what the machine does next.
    Installed(AfterInstall, Inventory),
    /// Nothing was written, because of a finished node.
    Untouched(UntouchedNodes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReinstallConsent {
    /// As `install.reinstall` says.
    ByRule,
    /// The user has seen them and agreed.
    Given,
}

/// Installs the configuration, unless a finished node must not be overwritten. That is decided before the install is reported to
/// anyone, and before the network is set up.
pub(crate) fn carry_out(
    (config, consent): (&InstallConfig, ReinstallConsent),
    media: &Media,
    progress: &Progress,
    record: &mut RunRecord<'_>,
    cancel: &dyn Fn() -> Cancel,
) -> Result<InstallEnd> {
    media.judge_for(config)?;
    let roots = Roots::default();
    let live = is_live(&kernel_command_line()?);
    if live {
        let forever = config.install.automatic;
        let pace = &mut SystemPace::default();
        connect_disks((config, forever), Path::new("/"), &SystemRunner, pace, progress)?;
    }
    let mut inventory =
        if live { scan_complete(config, &roots, progress)? } else { Inventory::scan(&roots)? };
    if live {
        inventory = join_paths(config, inventory, (&roots, Path::new("/")), &SystemRunner, progress)?;
    }
    record.inventory(&inventory);
    let (rule, offer) = (&config.install.reinstall, finished_nodes::offer(media, config)?);
    let nodes = finished_nodes::look(config, &inventory, &SystemRunner);
    if let (ReinstallConsent::ByRule, ReinstallDecision::Leave(reason)) =
        (consent, decide(rule, &nodes, &offer)?)
    {
        return Ok(InstallEnd::Untouched(UntouchedNodes { nodes, reason }));
    }
    for node in &nodes {
        progress.note("reinstall", format!("{}; the install overwrites it", node.headline()));
    }
    let installed = InstallRecord::begin(&offer, &words(rule, &nodes))?.to_json()?;
    if live {
        set_up_network(config, Path::new("/"), &SystemRunner, progress)?;
    }
    progress.note("release", format!("{} {} is {}", media.release.name, media.release.version, media.trust));
    if let Some(custom) = &media.customization {
        progress.note("release", format!("The customization of the medium is {}", custom.trust));
    }
    record.started(&media.release);
    let fetch = SystemFetch::new(media.combined.authorities.clone(), RetryPolicy::default());
    let mut warn = |text| progress.note("configuration", format!("warning: {text}"));
    let config = &resolve(config, &fetch, &mut warn)?;
    record.resolved(config);
    let draft = |guid| media.plan(config, &inventory, guid);
    let plan = draft(uuid::Uuid::new_v4())?;
    let maps = inventory.disks.iter().any(Disk::is_map);
    let remote = inventory.disks.iter().any(|disk| disk.remote.is_some());
    let node = PlannedNode {
        not_before: Some(media.release.epoch),
        several_paths: maps.then(|| media.has_multipath()).transpose()?,
        coverage: media.judged_coverage(&roots),
        crash_dumps: config.os.host.has_crash_kernel().then(|| media.crash_dump_support()).transpose()?,
        disk_protocols: remote.then(|| media.disk_protocols()).transpose()?,
        ..PlannedNode::of(config)
    };
    let preflight = fitness::step(node, &|| record.creator_status(), progress)?;
    record.plan(&plan);
    // From here on signals are handled only where it is safe to stop.
    let cancel = cancel();
    let host = SystemHost::new()?;
    take_down(&plan.taken_down, &roots.sys, &SystemRunner, progress)?;
    let disk = OpenDisk::open(&plan.disk)?;
    let mut plan = take_up(plan, &disk, &host, progress, &draft);
    if let Some(authority) = &preflight.authority {
        pin(&mut plan.document, authority);
    }
    let fleet = match ClusterMember::of(&plan.document) {
        Some(_) => record.kept_by_node()?,
        None => None,
    };
    // Before the first write: an error here must not cost a disk.
    let document =
        node_document(&plan.document).class(Class::Invalid, || "making the node document".into())?;
    let preflight = preflight.to_text();
    let texts = NodeTexts {
        document: Some(document),
        defaults: None,
        machine_id: Some(MachineId::fresh().to_string()),
        fleet,
        installed: Some(installed),
        unsigned: UnsignedRecord::of(&media.release, &media.trust),
        preflight,
    };
    let sealed = SealedPlan::new(plan, texts);
    let effects = RunEffects {
        device: &disk,
        open: &|target| Ok(Box::new(OpenDisk::open(target)?)),
        source: media.source.as_ref(),
        runner: &SystemRunner,
        host: &host,
        progress,
        cancel: &cancel,
        unpacking: &Unpacking::of_live_system(),
    };
    execute(&sealed, &effects)?;
    Ok(InstallEnd::Installed(sealed.plan().finish, inventory))
}

/// The text of the node document. The node reads it at every boot: an invalid one must not cost a disk.
pub(super) fn node_document(config: &InstallConfig) -> Result<Secret> {
    let text = config.for_node()?.to_yaml();
    config::parse(&text, DOCUMENT)?;
    Ok(Secret::new(text))
}
