//! `/grub/node.cfg`: the kernel command line of this node as a function of GRUB's script, to which the script adds what
//! differs from boot to boot, the slot what belongs to its release, and `host.cfg` what follows from `os.host`.

use uuid::Uuid;

use model::architecture::Architecture;
use model::boot::grub::{HOST_FILE, NETWORK_DISKS_FILE};
use model::boot::{BootVolume, MultipathId, NetworkDiskUse, array_id, grub, parameter};
use model::config::InstallConfig;
use model::kernel_line::unquoted;

use super::consoles::consoles;

/// How long the initrd waits for disks, in seconds; an array with a missing disk is started without it after two thirds of that
/// (dracut.cmdline(7), `rd.retry`).
const DISKS_TIMEOUT_SECONDS: u32 = 60;

/// The file systems and arrays that a kernel command line names.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pub(crate) root_a: BootVolume,
    pub(crate) root_b: BootVolume,
    pub(crate) recovery: BootVolume,
    pub(crate) config: BootVolume,
    pub(crate) persistent: BootVolume,
    pub(crate) data: Option<BootVolume>,
    /// Every array of the node. The initrd starts these and no others.
    pub(crate) arrays: Vec<Uuid>,
    /// The disks of the node that have several paths.
    pub(crate) multipath: Vec<MultipathId>,
    /// The disks of the node that are reached over the network.
    pub(crate) network_disks: NetworkDiskUse,
}

/// The function `nq_linux`, which loads the kernel of the slot of its argument from its boot volume.
pub(crate) fn node_cfg(architecture: Architecture, volumes: &Volumes, config: &InstallConfig) -> String {
    let Volumes { root_a, root_b, recovery, .. } = volumes;
    // A variable that is not set is no word.
    let disks = if volumes.network_disks.any() {
        format!(
            "if [ -f ($root)/{NETWORK_DISKS_FILE} ]; then set nq_disks=($root)/{NETWORK_DISKS_FILE}; fi\n\
             export nq_disks\n"
        )
    } else {
        String::new()
    };
    format!(
        "set nq_host=\n\
         if [ -f ($root)/{HOST_FILE} ]; then source ($root)/{HOST_FILE}; fi\n\
         export nq_host\n\
         {disks}\
         # The recovery system is without the arguments of the host: it starts where they are wrong.\n\
         function nq_linux {{\n\
         \x20 set nq_own=\"$nq_host\"\n\
         \x20 if [ $1 = a ]; then set nq_root={root_a}\n\
         \x20 elif [ $1 = b ]; then set nq_root={root_b}\n\
         \x20 else set nq_root={recovery}; set nq_own=\n\
         \x20 fi\n\
         \x20 linux (bt)/vmlinuz root=$nq_root {}\n\
         }}\n",
        words(architecture, volumes, config)
    )
}

/// The most that the script adds to a command line (`nq_words` in `loader.cfg`).
const SCRIPT_WORDS: &str = "nqrust.slot=recovery nqrust.gen=999999999 nqrust.esp=00000000-0000-0000-0000-000000000000 panic=10 \
    systemd.crash_reboot=1 nqrust.trial=999999999";

/// The most bytes that the command line of this node can have under a release with these arguments.
pub(crate) fn longest_line(
    architecture: Architecture,
    volumes: &Volumes,
    config: &InstallConfig,
    release_words: &[String],
) -> usize {
    let roots = [&volumes.root_a, &volumes.root_b, &volumes.recovery];
    let root = roots.map(ToString::to_string).into_iter().max_by_key(String::len).unwrap_or_default();
    let words = words(architecture, volumes, config)
        .replace("$nq_words", SCRIPT_WORDS)
        .replace("$slot_words", &release_words.join(" "))
        .replace("$nq_own", &config.os.host_words(architecture).join(" "));
    format!("BOOT_IMAGE=(bt)/vmlinuz root={root} {words}").len()
}

/// What follows the root file system: what the node needs, what the script adds, what the release adds, what follows from
/// `os.host`, and last the line of the configuration.
fn words(architecture: Architecture, volumes: &Volumes, config: &InstallConfig) -> String {
    let mut words = vec![
        "rootfstype=squashfs".to_owned(),
        "ro".to_owned(),
        // Every partition is mounted by name; systemd must not mount the ESP on its own.
        "systemd.gpt_auto=0".to_owned(),
        format!("{}={}", parameter::CONFIG, volumes.config),
        format!("{}={}", parameter::PERSISTENT, volumes.persistent),
        // A boot that fails before the node's own system runs does not end in a shell, which would be root's without a password:
        // the initrd says why, waits, and restarts the machine (dracut.cmdline(7)).
        "rd.shell=0".to_owned(),
        "rd.emergency=reboot".to_owned(),
        // A kernel that stops would stand still for ever: nobody is there to restart it. An oops leaves locks held, so it is one too.
        "panic=10".to_owned(),
        "oops=panic".to_owned(),
    ];
    words.extend(volumes.data.map(|data| format!("{}={data}", parameter::DATA)));
    if !volumes.arrays.is_empty() {
        words.extend(volumes.arrays.iter().map(|array| format!("rd.md.uuid={}", array_id(*array))));
        words.push(format!("rd.retry={DISKS_TIMEOUT_SECONDS}"));
    }
    words.extend(
        consoles(architecture, config.install.tty.as_deref())
            .iter()
            .map(|console| format!("console={console}")),
    );
    words.push("$nq_words $slot_words $nq_own".to_owned());
    if !volumes.multipath.is_empty() {
        let maps: Vec<_> = volumes.multipath.iter().map(ToString::to_string).collect();
        words.push(format!("{}={}", parameter::MULTIPATH, maps.join(",")));
    } else if !config.os.external_storage_config.enabled {
        words.push("multipath=off".into());
    }
    if volumes.network_disks.any() {
        words.push(format!("{}={}", parameter::NETWORK_DISKS, volumes.network_disks));
    }
    let own = config.os.additional_kernel_arguments.as_deref().unwrap_or_default();
    words.extend(unquoted(own).iter().map(|argument| grub::quote(argument)));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::network_disks::DiskProtocol;

    /// The words of a line as GRUB's shell reads them (GRUB manual, "Quoting"); fails if a quote is not closed on the line.
    fn grub_words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '\'' => {
                    let word = word.get_or_insert_default();
                    loop {
                        match chars.next().expect("a quote that does not end") {
                            '\'' => break,
                            c => word.push(c),
                        }
                    }
                }
                '\\' => word.get_or_insert_default().push(chars.next().unwrap()),
                ' ' => words.extend(word.take()),
                c => {
                    assert!(!"\n\";{}|&<>#".contains(c), "GRUB reads {c:?}");
                    word.get_or_insert_default().push(c);
                }
            }
        }
        words.extend(word);
        words
    }

    fn volumes() -> Volumes {
        let [root_a, root_b, recovery, config, persistent] = [BootVolume::Partition(Uuid::nil()); 5];
        Volumes {
            root_a,
            root_b,
            recovery,
            config,
            persistent,
            data: None,
            arrays: Vec::new(),
            multipath: Vec::new(),
            network_disks: NetworkDiskUse::default(),
        }
    }

    fn linux(config: &InstallConfig) -> String {
        line_of(&volumes(), config)
    }

    fn line_of(volumes: &Volumes, config: &InstallConfig) -> String {
        let text = node_cfg(Architecture::Amd64, volumes, config);
        let mut lines = text.lines().map(str::trim_start).filter(|line| line.starts_with("linux "));
        lines.next().unwrap().to_owned()
    }

    #[test]
    fn own_arguments_come_last_and_do_not_bring_multipath_back() {
        let mut config = InstallConfig::default();
        config.os.additional_kernel_arguments = "intel_iommu=on \"dyndbg=file a.c +p\"".parse().ok();
        let line = linux(&config);
        assert!(
            line.contains(" console=tty0 console=ttyS0,115200 $nq_words $slot_words $nq_own multipath=off "),
            "{line}"
        );
        assert!(line.ends_with(" multipath=off intel_iommu=on 'dyndbg=file a.c +p'"), "{line}");
        config.os.external_storage_config.enabled = true;
        assert!(!linux(&config).contains("multipath"));
    }

    #[test]
    fn disks_with_several_paths_are_named_to_the_initrd_whatever_the_configuration_says_of_multipathd() {
        let multipath = ["3600c0ff0", "3600c0ff1"].map(|id| MultipathId::new(id).unwrap()).to_vec();
        let volumes = Volumes { multipath, ..volumes() };
        let mut config = InstallConfig::default();
        for enabled in [false, true] {
            config.os.external_storage_config.enabled = enabled;
            let line = line_of(&volumes, &config);
            assert!(line.contains(" nqrust.multipath=3600c0ff0,3600c0ff1"), "{line}");
            assert!(!line.contains("multipath=off"), "{line}");
        }
    }

    #[test]
    fn the_longest_command_line_has_what_the_script_the_release_and_the_host_add() {
        let mut config = InstallConfig::default();
        let none = longest_line(Architecture::Amd64, &volumes(), &config, &[]);
        let line = linux(&config).replace("$nq_words $slot_words $nq_own", &format!("{SCRIPT_WORDS}  "));
        let expected = line.replace(
            "linux (bt)/vmlinuz root=$nq_root",
            &format!("BOOT_IMAGE=(bt)/vmlinuz root={}", volumes().root_a),
        );
        assert_eq!(none, expected.len());
        config.os.host.iommu = true;
        let more = longest_line(Architecture::Amd64, &volumes(), &config, &["quiet".to_owned()]);
        assert_eq!(more, none + "quiet".len() + "intel_iommu=on iommu=pt".len());
    }

    #[test]
    fn disks_over_the_network_are_named_to_the_initrd_which_gets_the_file_with_how_they_are_reached() {
        let network_disks = NetworkDiskUse { system: true, data: Some(DiskProtocol::Iscsi) };
        let volumes = Volumes { network_disks, ..volumes() };
        let text = node_cfg(Architecture::Amd64, &volumes, &InstallConfig::default());
        assert!(text.contains(" nqrust.network_disks=system,data"), "{text}");
        assert!(
            text.contains("if [ -f ($root)/grub/disks.img ]; then set nq_disks=($root)/grub/disks.img; fi\nexport nq_disks\n"),
            "{text}"
        );
        let none = node_cfg(Architecture::Amd64, &super::tests::volumes(), &InstallConfig::default());
        assert!(!none.contains("disks"), "{none}");
    }

    #[test]
    fn each_slot_has_a_root_of_its_own() {
        let [a, b, recovery] = [1, 2, 3].map(|id| BootVolume::Partition(Uuid::from_u128(id)));
        let volumes = Volumes { root_a: a, root_b: b, recovery, ..volumes() };
        let text = node_cfg(Architecture::Amd64, &volumes, &InstallConfig::default());
        for (condition, root) in
            [("if [ $1 = a ]; then", a), ("elif [ $1 = b ]; then", b), ("else", recovery)]
        {
            assert!(text.contains(&format!(" {condition} set nq_root={root}")), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_argument_breaks_out_of_its_line(own in "[ -~]{0,60}") {
            let mut config = InstallConfig::default();
            config.os.additional_kernel_arguments = own.parse().ok();
            let mut expected = vec!["multipath=off".to_owned()];
            if config.os.additional_kernel_arguments.is_some() {
                expected.extend(unquoted(&own));
            }
            let words = grub_words(&linux(&config));
            proptest::prop_assert_eq!(&words[words.len() - expected.len()..], expected);
        }
    }
}
