//! Finished nodes on the disks: what an install, a dry run and the questions on the console do about them.

use anyhow::Result;

use super::gather::Media;
use base::command::Runner;
use base::failure::{Class, Failure, causes, class_of};
use base::progress::Progress;
use install::installed::{
    FinishedNode, InstallOffer, LeaveReason, NodeOrigin, ReinstallDecision, decide, find, read,
};
use install::plan::written_disks;
use machine::inventory::Inventory;
use model::config::InstallConfig;
use ui::questions::ShownNode;

#[derive(Clone, Debug)]
pub(crate) struct UntouchedNodes {
    pub(crate) nodes: Vec<FinishedNode>,
    pub(crate) reason: LeaveReason,
}

impl UntouchedNodes {
    /// Reports which nodes are left as they are, and why.
    pub(crate) fn tell(&self, progress: &Progress) {
        for node in &self.nodes {
            node.describe().lines().for_each(|line| progress.note("reinstall", line));
        }
        progress.note("reinstall", self.why());
    }

    pub(crate) fn why(&self) -> String {
        format!("Nothing is written: {}.", self.reason.text())
    }

    pub(crate) fn failure(&self) -> Failure {
        let heads: Vec<_> = self.nodes.iter().map(FinishedNode::headline).collect();
        let what = format!("{}, and nothing was installed", heads.join("; "));
        let why = anyhow::anyhow!("{}", self.reason.text());
        Failure::new(Class::Hardware, what).because(why).hint(self.reason.hint())
    }
}

/// The finished nodes on the disks that an install with this configuration would write. Empty if it does not choose disks: the
/// plan says why.
pub(crate) fn look(config: &InstallConfig, inventory: &Inventory, runner: &dyn Runner) -> Vec<FinishedNode> {
    written_disks(config, inventory).map(|disks| read(find(&disks), runner)).unwrap_or_default()
}

/// The finished node of a machine whose configuration cannot be loaded because of `error`, if there is exactly one. After a power
/// failure the server with the configuration may come back later than this machine, and the node must not wait for it.
pub(crate) fn without_configuration(
    error: &anyhow::Error,
    inventory: &Inventory,
    runner: &dyn Runner,
) -> Option<UntouchedNodes> {
    if class_of(error) != Class::Network {
        return None;
    }
    let nodes = read(find(&inventory.disks.iter().collect::<Vec<_>>()), runner);
    let reason = LeaveReason::NoConfiguration(causes(error).join(": "));
    (nodes.len() == 1).then_some(UntouchedNodes { nodes, reason })
}

/// The install from this medium with this configuration, for comparison.
pub(crate) fn offer(media: &Media, config: &InstallConfig) -> Result<InstallOffer> {
    let mut sources: Vec<String> = Vec::new();
    // The version of the scheme is no setting; some documents contain nothing else.
    for entry in media.combined.entries.iter().filter(|entry| entry.path != "scheme_version") {
        let source = format!("{} ({})", entry.source, entry.file);
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    InstallOffer::of(
        &media.release,
        media.customization.as_ref().map(|custom| custom.digest),
        config,
        sources,
    )
}

pub(crate) fn present(nodes: &[FinishedNode]) -> Vec<ShownNode> {
    nodes.iter().map(|node| ShownNode { headline: node.headline(), facts: node.facts() }).collect()
}

/// What an automatic install would do with the nodes on its disks; for a dry run. Empty without nodes.
///
/// `runner` is `None` if the disks are those of another machine, of which only the inventory is known.
pub(crate) fn foretell(
    config: &InstallConfig,
    inventory: &Inventory,
    media: &Media,
    runner: Option<&dyn Runner>,
) -> Result<String> {
    let nodes = match runner {
        Some(runner) => look(config, inventory, runner),
        None => {
            let places = written_disks(config, inventory).map(|disks| find(&disks)).unwrap_or_default();
            places.into_iter().map(elsewhere).collect()
        }
    };
    if nodes.is_empty() {
        return Ok(String::new());
    }
    let rule = &config.install.reinstall;
    let would = match (decide(rule, &nodes, &offer(media, config)?)?, runner) {
        (ReinstallDecision::Install, _) => {
            format!("An automatic install overwrites it: install.reinstall is {rule}.")
        }
        (ReinstallDecision::Leave(LeaveReason::Unknown), None) => format!(
            "Whether an automatic install overwrites it depends on its record: install.reinstall is {rule}."
        ),
        (ReinstallDecision::Leave(reason), _) => {
            format!("An automatic install leaves it as it is and starts it: {}.", reason.text())
        }
    };
    let described: String = nodes.iter().map(FinishedNode::describe).collect();
    Ok(format!("\nOn the disks now\n{described}  {would}\n"))
}

/// A node on a disk of another machine.
fn elsewhere(place: install::installed::NodePlace) -> FinishedNode {
    let why = "the disk is not in this machine".to_owned();
    FinishedNode { place, twin: None, identity: None, origin: NodeOrigin::Unreadable(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::size::ByteSize;
    use machine::inventory::Disk;
    use medium::payload_sources::LocalMedium;
    use model::config::sources::combine;
    use model::config::{Install, Profile};
    use testing::disks::{disk, node_disk as node};
    use testing::release::release;
    use testing::runner::ScriptedRunner;

    fn told(rule: &str, disks: &[Disk], change: fn(&mut InstallConfig)) -> String {
        let source = Box::new(LocalMedium::new("/nonexistent"));
        let media = Media {
            source,
            release: release().into(),
            trust: trust::ReleaseTrust::Signed(Vec::new()),
            policy: crate::app::gather::ReleasePolicy::Any,
            combined: combine(&[]).unwrap(),
            customization: None,
            coverage: Default::default(),
        };
        let install = Install { profile: Profile::Trial, automatic: true, ..Install::default() };
        let mut config = InstallConfig { install, ..InstallConfig::default() };
        config.install.device = "/dev/vda".parse().ok();
        config.install.reinstall = rule.parse().unwrap();
        change(&mut config);
        let inventory = Inventory { disks: disks.to_vec(), ..Inventory::default() };
        foretell(&config, &inventory, &media, None).unwrap()
    }

    #[test]
    fn a_dry_run_tells_of_a_finished_node_and_what_becomes_of_it() {
        let text = told("false", &[node("vda", true)], |_| ());
        assert!(text.contains("/dev/vda holds a finished node"), "{text}");
        assert!(text.contains("leaves it as it is and starts it: install.reinstall is false."), "{text}");
        let text = told("true", &[node("vda", true)], |_| ());
        assert!(text.contains("depends on its record: install.reinstall is true."), "{text}");
        assert_eq!(told("false", &[node("vda", false)], |_| ()), "", "an install was interrupted there");
    }

    #[test]
    fn a_node_starts_where_the_configuration_cannot_be_fetched_and_it_is_the_only_one() {
        let left = |class, disks: &[Disk]| {
            let error = Failure::new(class, "fetching http://192.0.2.1/node.yaml")
                .because(anyhow::anyhow!("connection refused"));
            let inventory = Inventory { disks: disks.to_vec(), ..Inventory::default() };
            without_configuration(&error.into(), &inventory, &ScriptedRunner::failing("Input/output error"))
        };
        let (one, empty): (Disk, Disk) = (node("vda", true), disk("vdb", ByteSize::gib(32)));
        let why = left(Class::Network, &[empty.clone(), one.clone()]).unwrap().why();
        assert_eq!(
            why,
            "Nothing is written: the configuration could not be loaded: fetching http://192.0.2.1/node.yaml: connection refused."
        );
        // A configuration with mistakes needs a person, and one of two nodes cannot be chosen.
        assert!(left(Class::Invalid, std::slice::from_ref(&one)).is_none());
        assert!(left(Class::Network, &[one, node("vdc", true)]).is_none());
        assert!(left(Class::Network, &[empty, node("vda", false)]).is_none());
    }

    #[test]
    fn a_node_on_any_disk_that_would_be_written_counts_and_one_elsewhere_does_not() {
        let disks = [disk("vda", ByteSize::gib(32)), node("vdb", true)];
        assert_eq!(told("false", &disks, |_| ()), "");
        let mirrored = told("false", &disks, |config| config.install.mirror = "/dev/vdb".parse().ok());
        let data = told("false", &disks, |config| config.install.data_disk = "/dev/vdb".parse().ok());
        for text in [mirrored, data] {
            assert!(text.contains("/dev/vdb holds a finished node"), "{text}");
        }
        let kept = told("false", &disks, |config| {
            config.install.data_disk = "/dev/vdb".parse().ok();
            config.install.keep = vec![model::config::Keep::Data];
        });
        assert_eq!(kept, "", "nothing of that disk is written");
    }
}
