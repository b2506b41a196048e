//! The settings of the machine under virtual machines (`os.host`) on a running node: set up at each start, and the arguments of the
//! kernel kept for the next one. How a machine is set up is in [`machine::host`].

use std::path::Path;

use anyhow::Result;

use super::update::NodeSlots;
use base::command::Runner;
use base::failure::{Class, Failure};
use base::files::read_text_if_present;
use install::execute::change_host_words;
use machine::host::{self, HostFacts, NeededDevices};
use machine::inventory::nics;
use machine::nics::{FoundCard, RememberedCards, find};
use machine::paths::{DOCUMENT, below};
use model::architecture::Architecture;
use model::boot::crash::COMMAND_LINE_BYTES;
use model::boot::{BootParameters, Slot};
use model::config::host::HOST_ARGUMENTS;
use model::config::{self, InstallConfig};

/// The part of a start in which the settings are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStage {
    /// Before drivers are loaded for the devices of the machine.
    BeforeDrivers,
    /// Once drivers have their devices.
    WithDrivers,
}

/// Sets up the machine of the node at `root`, as far as its document can be read. Returns lines for the journal; failures are among
/// them, because a node starts without a setting too.
pub fn set_up(root: &Path, stage: StartStage, runner: &dyn Runner) -> Result<Vec<String>> {
    let config = config::load_applicable(&below(root, DOCUMENT), &[])?.config;
    let mut notes = Vec::new();
    if !config.os.host.is_empty() {
        let (sys, settings) = (root.join("sys"), &config.os.host);
        let needed = needed(root, &config);
        notes = match stage {
            StartStage::BeforeDrivers => host::prepare(&sys, settings, &needed, runner),
            StartStage::WithDrivers => host::settle(&sys, settings, &needed, runner),
        };
    }
    if stage == StartStage::WithDrivers {
        match keep_words(root, &config) {
            Ok(None) => {}
            Ok(Some(words)) => notes.push(next_words(&words)),
            Err(error) => {
                notes.push(format!("warning: os.host: the kernel arguments of the next start: {error:#}"))
            }
        }
    }
    Ok(notes)
}

/// The line that says what the kernel is started with next.
#[must_use]
pub fn next_words(words: &[String]) -> String {
    match words {
        [] => "From the next start on the kernel gets no arguments of os.host.".to_owned(),
        words => format!("From the next start on the kernel gets the arguments {}.", words.join(" ")),
    }
}

/// A clause for each device that the document takes away from the running node at `root`, which therefore keeps it.
#[must_use]
pub fn kept_devices(root: &Path, config: &InstallConfig) -> Vec<String> {
    if config.os.host.passthrough.is_empty() {
        return Vec::new();
    }
    let facts = HostFacts::scan(&root.join("sys"));
    let taken = needed(root, config).taken_by(&config.os.host, &facts);
    taken.into_iter().map(|clause| format!("{clause}; the node keeps it")).collect()
}

/// The devices of the mounted disks and of the network cards that the document names.
fn needed(root: &Path, config: &InstallConfig) -> NeededDevices {
    let sys = root.join("sys");
    let present = nics::scan(&sys);
    let remembered = RememberedCards::beside(&below(root, DOCUMENT)).unwrap_or_default();
    let found = find(config, &remembered, &present);
    let cards = found.iter().filter_map(|(_, card)| match card {
        FoundCard::ByAddress(nic) | FoundCard::ByName(nic) => Some(nic.name.as_str()),
        FoundCard::Missing => None,
    });
    NeededDevices::of_running(root, &HostFacts::scan(&sys), cards)
}

/// Keeps the arguments that follow from the document for the boot loader of the node at `root`. Returns them if they were others.
pub fn keep_words(root: &Path, config: &InstallConfig) -> Result<Option<Vec<String>>> {
    let words = config.os.host_words(Architecture::of_this_program());
    let line = read_text_if_present(&root.join("proc/cmdline"))?.unwrap_or_default();
    // A system that GRUB did not start does not know its disks. The install has written the file for the first start.
    let started = BootParameters::parse(&line)?.filter(|installed| installed.esp.is_some());
    let Some(installed) = started.filter(|installed| installed.slot != Slot::Recovery) else {
        return Ok(None);
    };
    require_short_line(&line, &words)?;
    let changed = NodeSlots::look(root, &installed).and_then(|slots| change_host_words(&slots.esps, &words));
    match changed {
        Ok(changed) => Ok(changed.then_some(words)),
        // A node that was installed before there were such settings has no place for them, and needs none.
        Err(_) if words.is_empty() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses arguments with which the kernel would lose the end of its command line. `line` is that of the present start.
fn require_short_line(line: &str, words: &[String]) -> Result<()> {
    /// What the boot loader adds where a release is on trial.
    const TRIAL_BYTES: usize = " panic=10 systemd.crash_reboot=1 nqrust.trial=999999999".len();
    let of_host = |word: &&str| HOST_ARGUMENTS.contains(&word.split('=').next().unwrap_or_default());
    let others = line.split_whitespace().filter(|word| !of_host(word)).map(str::len);
    let all =
        others.chain(words.iter().map(String::len)).map(|length| length + 1).sum::<usize>() + TRIAL_BYTES;
    if all < COMMAND_LINE_BYTES {
        return Ok(());
    }
    let most = COMMAND_LINE_BYTES - 1;
    let what = format!("the kernel's command line would have {all} bytes, and kernels read {most}");
    Err(Failure::new(Class::Invalid, what).hint("Set less in os.host.").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testing::runner::ScriptedRunner;

    fn node(document: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("oem/node.yaml", document);
        put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
        put("sys/class/net/ens3/address", "52:54:00:00:00:03\n");
        put("sys/class/net/ens3/addr_assign_type", "0\n");
        let device = root.path().join("sys/devices/pci0000:00/0000:00:03.0");
        for (file, text) in [("class", "0x020000"), ("vendor", "0x1af4"), ("device", "0x1041")] {
            put(&format!("sys/devices/pci0000:00/0000:00:03.0/{file}"), text);
        }
        fs::create_dir_all(root.path().join("sys/bus/pci/devices")).unwrap();
        for link in ["sys/class/net/ens3/device", "sys/bus/pci/devices/0000:00:03.0"] {
            std::os::unix::fs::symlink(&device, root.path().join(link)).unwrap();
        }
        root
    }

    #[test]
    fn a_document_with_a_mistake_sets_up_the_rest() {
        let text = "os: {hostnam: x, host: {huge_pages: [{size: 2M, count: 4}], passthrough: [nonsense]}}\n";
        let root = node(text);
        let notes = set_up(root.path(), StartStage::BeforeDrivers, &ScriptedRunner::new()).unwrap();
        assert_eq!(notes, ["4 pages of 2M are reserved"]);
        let nothing = node("os: {hostname: x}\n");
        for stage in [StartStage::BeforeDrivers, StartStage::WithDrivers] {
            assert!(set_up(nothing.path(), stage, &ScriptedRunner::new()).unwrap().is_empty());
        }
    }

    #[test]
    fn the_card_of_the_management_network_stays_with_the_node() {
        let text = "install: {mode: install, management_interface: {interfaces: [{name: ens3}]}}\n\
                    os: {host: {passthrough: ['1af4:1041']}}\n";
        let root = node(text);
        let notes = set_up(root.path(), StartStage::BeforeDrivers, &ScriptedRunner::new()).unwrap();
        assert!(
            notes[0].contains("0000:00:03.0 stays with the node: the network card ens3 is on it"),
            "{notes:?}"
        );
        let config = config::parse(text, "node.yaml").unwrap();
        let kept = kept_devices(root.path(), &config);
        assert!(kept[0].ends_with("on which the network card ens3 is; the node keeps it"), "{kept:?}");
    }

    #[test]
    fn arguments_with_which_the_kernel_would_lose_the_end_of_its_line_are_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let before =
            format!("root=x hugepagesz=2M hugepages=4 isolcpus={} {}", "1,".repeat(300), "a=b ".repeat(300));
        require_short_line(&before, &words("hugepagesz=2M hugepages=4")).unwrap();
        let long = format!("isolcpus={} nohz_full=1 rcu_nocbs=1", "1,".repeat(450));
        let error = require_short_line(&before, &words(&long)).unwrap_err();
        assert!(error.to_string().ends_with("bytes, and kernels read 2047"), "{error}");
    }

    #[test]
    fn a_system_that_grub_did_not_start_keeps_no_arguments() {
        let text = "os: {host: {iommu: true}}\n";
        let root = node(text);
        let config = config::parse(text, "node.yaml").unwrap();
        assert_eq!(keep_words(root.path(), &config).unwrap(), None);
        assert!(next_words(&config.os.host_words(Architecture::Amd64)).contains("intel_iommu=on iommu=pt"));
    }
}
