//! `installer apply`: turns the node document into files.

use std::path::{Path, PathBuf};

use anyhow::Result;

use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::files::named;
use base::program::Context;
use machine::paths::DOCUMENT;
use node::apply::{self, ApplyOutcome};
use node::apply_running::apply_running;
use node::host::next_words;
use node::network_trial::run as trial;

#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// The node document; by default oem/node.yaml below the root.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl ApplyArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { config, root } = self;
        let root = root.as_path();
        if let Some(named) = &config {
            named::refuse_standard(
                named,
                "the node document",
                "the machine's identity and its cards are remembered beside it",
            )?;
        }
        let is_named = config.is_some();
        let config = &config.unwrap_or_else(|| root.join(DOCUMENT.trim_start_matches('/')));
        if !root.join(ACCOUNTS).is_file() {
            let what = format!("{} is not the root of a system: it has no {ACCOUNTS}", root.display());
            let hint = "Name the root of a node with --root, for instance where its OS image and its /oem are mounted.";
            return Err(Failure::new(Class::Invalid, what).hint(hint).into());
        }
        if !is_named && !config.exists() {
            let what = format!("{} does not exist", config.display());
            let hint = "Run this on an installed node, as root, or name a document with --config.";
            return Err(Failure::new(Class::Hardware, what).hint(hint).into());
        }
        // The end of a trial restores the old files, and would lose what is written meanwhile.
        trial::refuse_during(root)?;
        let running = root == Path::new("/");
        let outcome = if running && config.as_path() == Path::new(DOCUMENT) {
            apply_running(config, root, &SystemRunner)?
        } else {
            apply::apply(config, root)?
        };
        context.show(&outcome, || tell(&outcome, running))
    }
}

/// The accounts of a system, to which those of its node are added.
const ACCOUNTS: &str = "etc/passwd";

fn tell(outcome: &ApplyOutcome, running: bool) -> String {
    let line = |verb: &str, paths: &[String]| -> String {
        paths.iter().map(|path| format!("{verb} /{path}\n")).collect()
    };
    let mut text = line("wrote", &outcome.written) + &line("removed", &outcome.removed);
    text.extend(outcome.next_kernel_arguments.iter().map(|words| next_words(words) + "\n"));
    if text.is_empty() {
        text.push_str("Nothing to do: the files are as the document says.\n");
    } else if running {
        let changed: Vec<&String> = outcome.written.iter().chain(&outcome.removed).collect();
        for (prefix, advice) in ADVICE {
            if changed.iter().any(|path| path.starts_with(prefix)) {
                text.push_str(&format!("{advice}\n"));
            }
        }
    }
    text.extend(outcome.warnings.iter().map(|warning| format!("warning: {warning}\n")));
    text
}

/// When a change takes effect, by the beginning of its path.
const ADVICE: &[(&str, &str)] = &[
    ("etc/hostname", "The host name takes effect at the next boot."),
    ("etc/machine-id", "The machine id takes effect at the next boot."),
    (
        "etc/modprobe.d/",
        "Options of kernel modules take effect when the modules are loaded: at the next boot.",
    ),
    ("etc/modules-load.d/", "Kernel modules are loaded at the next boot."),
    ("etc/sysctl.d/", "Kernel settings take effect at the next boot, or now with: sysctl --system"),
    (
        "etc/NetworkManager/",
        "The network takes effect at the next boot, or now with: systemctl restart NetworkManager",
    ),
    (
        "etc/ssh/sshd_config.d/",
        "The SSH server takes effect at the next boot, or now with: systemctl reload ssh",
    ),
    ("etc/rancher/", "The node's part in its cluster takes effect at the next boot."),
    ("etc/systemd/system/", "Another service of Kubernetes is started at the next boot."),
    (
        "etc/vconsole.conf",
        "The keyboard layout takes effect at the next boot, or now with: systemctl restart nqrust-keyboard",
    ),
    (
        "etc/systemd/timesyncd.conf.d/",
        "Time servers take effect at the next boot, or now with: systemctl restart systemd-timesyncd",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_node_is_told_what_waits_for_the_next_boot() {
        let outcome = ApplyOutcome {
            written: vec!["etc/hostname".into()],
            removed: vec!["etc/sysctl.d/x".into()],
            ..ApplyOutcome::default()
        };
        let text = tell(&outcome, true);
        assert!(text.starts_with("wrote /etc/hostname\nremoved /etc/sysctl.d/x\n"));
        assert!(text.contains("host name takes effect at the next boot") && text.contains("sysctl --system"));
        assert!(!text.contains("SSH"));
        assert!(!tell(&outcome, false).contains("next boot"));
        let words = Some(vec!["iommu=pt".to_owned()]);
        let other = ApplyOutcome { next_kernel_arguments: words, ..ApplyOutcome::default() };
        assert_eq!(tell(&other, true), "From the next start on the kernel gets the arguments iommu=pt.\n");
        let warned = ApplyOutcome { warnings: vec!["a".into()], ..ApplyOutcome::default() };
        assert!(tell(&warned, true).ends_with("\nwarning: a\n"));
    }
}
