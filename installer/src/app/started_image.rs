//! The first start of a disk image: the node document is written, and the machine restarts with it.
//!
//! `installer first-start` calls it for a configuration of the sources, [`super::questions`] for one of answers.

use std::path::Path;

use anyhow::Result;

use super::fitness;
use super::gather::Media;
use super::install::node_document;
use base::command::SystemRunner;
use base::failure::{Class, Classify};
use base::files::write_atomically;
use base::progress::Progress;
use cluster::join_query::pin;
use install::execute::finish;
use install::plan::AfterInstall;
use install::resolve::{SystemFetch, resolve};
use machine::inventory::{Inventory, Roots};
use machine::live::set_up_network;
use machine::nics::{RememberedCards, record};
use machine::paths::DOCUMENT;
use machine::unsigned_record::UnsignedRecord;
use model::config::{InstallConfig, Mode};
use preflight::PlannedNode;
use transfer::download::RetryPolicy;
use ui::questions::ShownPlan;

/// Checks of disks, which an image cannot change.
const DISK_CHECKS: [&str; 2] = ["disk-size", "disk-speed"];

/// Makes this machine the node of the configuration, and restarts it. The document is written last and at once: until then the next
/// start is the first one again.
pub(crate) fn become_node(
    config: &InstallConfig,
    authorities: Vec<String>,
    media: &Media,
    progress: &Progress,
) -> Result<()> {
    let inventory = Inventory::scan(&Roots::default())?;
    set_up_network(config, Path::new("/"), &SystemRunner, progress)?;
    let fetch = SystemFetch::new(authorities, RetryPolicy::default());
    let mut warn = |text| progress.note("configuration", format!("warning: {text}"));
    let mut config = resolve(config, &fetch, &mut warn)?;
    // No server of a fleet follows the first start of a disk image.
    let node = PlannedNode {
        not_before: Some(media.release.epoch),
        ..PlannedNode::of(&with_its_disks(&config, true))
    };
    let preflight = fitness::step(node, &|| None, progress)?;
    if let Some(authority) = &preflight.authority {
        pin(&mut config, authority);
    }
    progress.within("node", "Writing the node document", || {
        let document = node_document(&config).class(Class::Invalid, || "making the node document".into())?;
        // Before the document, with which the machine becomes a node.
        if let Some(record) = UnsignedRecord::of(&media.release, &media.trust) {
            record.keep(Path::new("/"))?;
        }
        let cards = RememberedCards::default().after(&config, &inventory.nics);
        let path = Path::new(DOCUMENT);
        if !cards.is_empty() {
            let cards_path = path.with_file_name(record::FILE);
            write_atomically(&cards_path, cards.to_text().as_bytes(), record::MODE)?;
        }
        write_atomically(path, document.expose().as_bytes(), 0o600)
            .class(Class::DiskIo, || format!("storing {DOCUMENT}"))
    })?;
    finish(AfterInstall::Reboot, &inventory, &SystemRunner)
}

/// The configuration without checks of the disks, if they are those of an image that runs.
pub(super) fn with_its_disks(config: &InstallConfig, first_start: bool) -> InstallConfig {
    let mut config = config.clone();
    if first_start {
        let checks = DISK_CHECKS.iter().filter_map(|check| check.parse().ok());
        config.install.skip_checks.extend(checks);
    }
    config
}

/// What the first start does, for people.
pub(super) fn shown(media: &Media, config: &InstallConfig) -> ShownPlan {
    let release = &media.release;
    let install = &config.install;
    let becomes = match install.mode {
        Mode::Create => "the first node of a new cluster".to_owned(),
        Mode::Join => {
            let server = config.server_url.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("a node of the cluster at {server}, role {}", install.own_role().name())
        }
        Mode::Install => "a machine without a cluster".to_owned(),
    };
    let name = config.os.hostname.as_deref().unwrap_or("by its machine id, or by DHCP");
    let warning = media.trust_warning().map(|text| format!("\n\nWarning: {text}.")).unwrap_or_default();
    let text = format!(
        "{} {} is on the disk of this machine.\n\nIt becomes {becomes}.\nHost name: {name}\n\n\
         The node document is written to {DOCUMENT}, and the machine restarts.{warning}",
        release.name, release.version
    );
    ShownPlan { text, erased: Vec::new(), steps: vec!["preflight".into(), "node".into()] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::gather::ReleasePolicy;
    use model::config::sources::combine;
    use trust::{ReleaseTrust, UnsignedReason};

    #[test]
    fn the_disks_of_an_image_that_runs_are_not_judged() {
        let config = model::config::parse("install: {skip_checks: [memory]}", "f").unwrap();
        let skipped = |first_start| {
            let checks = with_its_disks(&config, first_start).install.skip_checks;
            checks.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(skipped(false), ["memory"]);
        assert_eq!(skipped(true), ["memory", "disk-size", "disk-speed"]);
    }

    #[test]
    fn what_a_machine_becomes_is_told_without_a_disk() {
        let text = "server_url: https://192.0.2.10\ntoken: hush\nos: {hostname: edge-1}\n\
                    install: {mode: join, role: worker}";
        let config = model::config::parse(text, "f").unwrap();
        let media = |trust| Media {
            source: Box::new(medium::payload_sources::LocalMedium::new("/nonexistent")),
            release: testing::release::release().into(),
            trust,
            policy: ReleasePolicy::Any,
            combined: combine(&[]).unwrap(),
            customization: None,
            coverage: Default::default(),
        };
        let plan = shown(&media(ReleaseTrust::Signed(Vec::new())), &config);
        assert!(
            plan.text.contains("https://192.0.2.10") && plan.text.contains("role worker"),
            "{}",
            plan.text
        );
        assert!(plan.text.contains("edge-1") && !plan.text.contains("hush"), "{}", plan.text);
        assert!(plan.erased.is_empty() && !plan.text.contains("Warning"), "{}", plan.text);
        let unsigned = shown(&media(ReleaseTrust::Unsigned(UnsignedReason::Missing)), &config);
        assert!(unsigned.text.contains("Warning: the release "), "{}", unsigned.text);
        assert!(unsigned.text.ends_with("is not signed."), "{}", unsigned.text);
    }
}
