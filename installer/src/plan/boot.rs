//! The files of the boot loader: kernel command lines, GRUB's configuration and its environment block.

use uuid::Uuid;

use model::boot::{BootVolume, Slot, array_id, parameter};
use model::config::InstallConfig;
use model::config::boot_password::PROTECT;
use model::config::formats::kernel;
use model::release::Release;

/// The length of GRUB's environment block in bytes; GRUB writes it in place and never changes its size.
const ENVIRONMENT_BYTES: usize = 1024;

/// How long the initrd waits for disks, in seconds; an array with a missing disk is started without it after two thirds of that
/// (dracut.cmdline(7), `rd.retry`).
const DISKS_TIMEOUT_SECONDS: u32 = 60;

/// The file systems and arrays that a kernel command line names.
#[derive(Clone, Debug)]
pub(super) struct Volumes {
    pub(super) root_a: BootVolume,
    pub(super) root_b: BootVolume,
    pub(super) config: BootVolume,
    pub(super) persistent: BootVolume,
    pub(super) data: Option<BootVolume>,
    /// Every array of the node. The initrd starts these and no others.
    pub(super) arrays: Vec<Uuid>,
}

/// An empty environment block.
pub(super) fn environment() -> String {
    let head = "# GRUB Environment Block\n";
    format!("{head}{}", "#".repeat(ENVIRONMENT_BYTES - head.len()))
}

/// The configuration that Debian's signed GRUB finds at its built-in place. It runs with `root` on the volume that GRUB was
/// loaded from; the search helps if firmware hides which volume that was.
pub(super) fn stub(esp_id: u32) -> String {
    format!(
        "if [ ! -f ($root)/grub/grub.cfg ]; then\n\
         \x20 search --no-floppy --fs-uuid --set=root {:04X}-{:04X}\n\
         fi\n\
         set prefix=($root)/grub\n\
         source ($root)/grub/grub.cfg\n",
        esp_id >> 16,
        esp_id & 0xffff
    )
}

/// The serial line of a node whose configuration names none.
const DEFAULT_SERIAL: &str = "ttyS0,115200";

/// The kernel command line of a slot: what the node needs, then `arguments` of the image, then those of the configuration.
pub(super) fn command_line(
    slot: Slot,
    volumes: &Volumes,
    arguments: &[String],
    config: &InstallConfig,
) -> String {
    let root = match slot {
        Slot::A => volumes.root_a,
        Slot::B => volumes.root_b,
    };
    let mut words = vec![
        format!("root={root}"),
        "rootfstype=squashfs".into(),
        "ro".into(),
        // Every partition is mounted by name; systemd must not mount the ESP on its own.
        "systemd.gpt_auto=0".to_owned(),
        format!("{}={slot}", parameter::SLOT),
        format!("{}={}", parameter::CONFIG, volumes.config),
        format!("{}={}", parameter::PERSISTENT, volumes.persistent),
        // A boot that fails before the node's own system runs does not end in a shell, which would be root's without a password:
        // the initrd says why, waits, and restarts the machine (dracut.cmdline(7)).
        "rd.shell=0".to_owned(),
        "rd.emergency=reboot".to_owned(),
    ];
    words.extend(volumes.data.map(|data| format!("{}={data}", parameter::DATA)));
    if !volumes.arrays.is_empty() {
        words.extend(volumes.arrays.iter().map(|array| format!("rd.md.uuid={}", array_id(*array))));
        words.push(format!("rd.retry={DISKS_TIMEOUT_SECONDS}"));
    }
    words.extend(consoles(config.install.tty.as_deref()).map(|console| format!("console={console}")));
    words.extend(arguments.iter().map(|argument| quote(argument)));
    if !config.os.external_storage_config.enabled {
        words.push("multipath=off".into());
    }
    let own = config.os.additional_kernel_arguments.as_deref().unwrap_or_default();
    words.extend(kernel::words(own).iter().map(|argument| quote(argument)));
    words.join(" ")
}

/// The screen and the serial line. Both show messages and a login; the last one is `/dev/console`, where the system itself
/// writes: the serial line, unless the configuration names a screen.
fn consoles(tty: Option<&str>) -> [&str; 2] {
    let screen = |tty: &str| tty.strip_prefix("tty").is_some_and(|rest| rest.parse::<u8>().is_ok());
    match tty {
        Some(tty) if screen(tty) => [DEFAULT_SERIAL, tty],
        tty => ["tty0", tty.unwrap_or(DEFAULT_SERIAL)],
    }
}

/// The number and the speed of the serial port for GRUB. For ports that GRUB does not know, the first one.
fn port(tty: Option<&str>) -> (u8, u32) {
    let line = tty.unwrap_or(DEFAULT_SERIAL);
    let (device, options) = line.split_once(',').unwrap_or((line, ""));
    let unit = device.strip_prefix("ttyS").and_then(|unit| unit.parse().ok()).filter(|unit| *unit < 4);
    let digits = options.find(|c: char| !c.is_ascii_digit()).unwrap_or(options.len());
    let speed = options[..digits].parse().ok().filter(|_| unit.is_some());
    // The kernel's own speed for a line without one is 9600 (Documentation/admin-guide/serial-console.rst).
    let unnamed = if unit.is_some() && tty.is_some() { 9600 } else { 115_200 };
    (unit.unwrap_or(0), speed.unwrap_or(unnamed))
}

/// The file with the password of GRUB's menu, from the root of the EFI system partition.
pub(super) const PASSWORD: &str = "grub/password.cfg";

/// The node's `/grub/grub.cfg`. Slot b appears once an update has put its kernel there.
pub(super) fn grub_cfg(release: &Release, config: &InstallConfig, line: impl Fn(Slot) -> String) -> String {
    let (unit, speed) = port(config.install.tty.as_deref());
    let mut text = String::new();
    if config.os.boot_password.is_some() {
        // The password is in a file of its own, because this one is printed with the plan.
        text.push_str(&format!("{PROTECT}source ($root)/{PASSWORD}\n"));
    }
    text.push_str(
        "set timeout=5\n\
         set default=nqrust-a\n\
         if [ -s ($root)/grub/grubenv ]; then\n\
         \x20 load_env --file ($root)/grub/grubenv nqrust_default\n\
         fi\n\
         if [ \"${nqrust_default}\" = \"b\" -a -f ($root)/nqrust/b/vmlinuz ]; then\n\
         \x20 set default=nqrust-b\n\
         fi\n\
         # UEFI firmware carries its own serial console; a second one on the same port would garble it.\n\
         if [ \"${grub_platform}\" = \"pc\" ]; then\n",
    );
    text.push_str(&format!("  if serial --unit={unit} --speed={speed}; then\n"));
    text.push_str(
        "\x20   terminal_input --append serial\n\
         \x20   terminal_output --append serial\n\
         \x20 fi\n\
         fi\n\n",
    );
    text.push_str(&entry(release, Slot::A, &line(Slot::A)));
    text.push_str("if [ -f ($root)/nqrust/b/vmlinuz ]; then\n");
    text.push_str(&entry(release, Slot::B, &line(Slot::B)));
    text.push_str("fi\n");
    text
}

fn entry(release: &Release, slot: Slot, line: &str) -> String {
    let letter = slot;
    let title = match slot {
        Slot::A => format!("{} {} (slot a)", release.name, release.version),
        // An update may bring another version than the one that wrote this file.
        Slot::B => format!("{} (slot b)", release.name),
    };
    format!(
        "menuentry {} --id nqrust-{letter} --unrestricted {{\n\
         \x20 linux ($root)/nqrust/{letter}/vmlinuz {line}\n\
         \x20 initrd ($root)/nqrust/{letter}/initrd\n\
         }}\n",
        quote(&title)
    )
}

/// A word for GRUB's shell, quoted if necessary.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_=.,:/@+-%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let visible: String = word.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", visible.replace('\'', r"'\''"))
}

/// The files that the entry of slot a in a `grub.cfg` of ours loads, as paths without a leading slash.
#[must_use]
pub fn files_of_slot_a(grub_cfg: &str) -> Vec<&str> {
    let loads = grub_cfg.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let command = words.next()?;
        let path = words.next()?.strip_prefix("($root)/")?;
        (matches!(command, "linux" | "initrd") && path.starts_with("nqrust/a/")).then_some(path)
    });
    loads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_block_has_the_length_that_grub_insists_on() {
        assert_eq!(environment().len(), 1024);
    }

    #[test]
    fn a_kernel_argument_cannot_end_the_line_of_the_menu_entry() {
        assert_eq!(quote("quiet"), "quiet");
        assert_eq!(quote("module.option=a b;c"), "'module.option=a b;c'");
        assert_eq!(quote("x='y'\n}"), r"'x='\''y'\''}'");
    }

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
                    assert!(!"\n\"$;{}|&<>#".contains(c), "GRUB reads {c:?}");
                    word.get_or_insert_default().push(c);
                }
            }
        }
        words.extend(word);
        words
    }

    fn volumes() -> Volumes {
        let [root_a, root_b, config, persistent] = [BootVolume::Partition(Uuid::nil()); 4];
        Volumes { root_a, root_b, config, persistent, data: None, arrays: Vec::new() }
    }

    fn line(config: &InstallConfig) -> String {
        command_line(Slot::A, &volumes(), &["quiet".into()], config)
    }

    #[test]
    fn the_console_of_the_configuration_takes_the_place_of_the_usual_one() {
        let cases = [
            (None, "console=tty0 console=ttyS0,115200 quiet", (0, 115_200)),
            (Some("ttyS1,9600n8"), "console=tty0 console=ttyS1,9600n8 quiet", (1, 9600)),
            (Some("ttyS0"), "console=tty0 console=ttyS0 quiet", (0, 9600)),
            (Some("hvc0"), "console=tty0 console=hvc0 quiet", (0, 115_200)),
            (Some("tty1"), "console=ttyS0,115200 console=tty1 quiet", (0, 115_200)),
        ];
        for (tty, consoles, grub) in cases {
            let mut config = InstallConfig::default();
            config.install.tty = tty.map(|tty| tty.parse().unwrap());
            assert!(line(&config).contains(consoles), "{}", line(&config));
            assert_eq!(port(tty), grub, "{tty:?}");
        }
    }

    #[test]
    fn own_arguments_come_last_and_do_not_bring_multipath_back() {
        let mut config = InstallConfig::default();
        config.os.additional_kernel_arguments = "intel_iommu=on \"dyndbg=file a.c +p\"".parse().ok();
        assert!(line(&config).ends_with(" quiet multipath=off intel_iommu=on 'dyndbg=file a.c +p'"));
        config.os.external_storage_config.enabled = true;
        assert!(!line(&config).contains("multipath"));
    }

    proptest::proptest! {
        #[test]
        fn no_argument_breaks_out_of_its_line(
            image in proptest::collection::vec("[ -~\n\u{e9}]{1,20}", 0..4),
            own in "[ -~]{0,60}",
        ) {
            let mut config = InstallConfig::default();
            config.os.additional_kernel_arguments = own.parse().ok();
            let line = command_line(Slot::A, &volumes(), &image, &config);
            proptest::prop_assert!(!line.contains('\n'));
            let words = grub_words(&line);
            let mut expected: Vec<String> = image.iter().map(|word| word.replace('\n', "")).collect();
            expected.push("multipath=off".into());
            if config.os.additional_kernel_arguments.is_some() {
                expected.extend(kernel::words(&own));
            }
            proptest::prop_assert_eq!(&words[words.len() - expected.len()..], expected);
        }
    }

    #[test]
    fn the_volume_id_is_written_as_grub_prints_it() {
        assert!(stub(0x12AB_00CD).contains("--set=root 12AB-00CD\n"));
    }
}
