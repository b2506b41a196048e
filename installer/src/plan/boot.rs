//! What the boot loader reads: kernel command lines, GRUB's configuration and its environment block.

use uuid::Uuid;

use crate::release::Release;

/// The length of GRUB's environment block; GRUB writes it in place and never changes its size.
const ENVIRONMENT: usize = 1024;

/// The partitions that a kernel command line names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volumes {
    pub(super) root_a: Uuid,
    pub(super) root_b: Uuid,
    pub(super) config: Uuid,
    pub(super) persistent: Uuid,
    pub(super) data: Option<Uuid>,
}

/// An empty environment block.
pub(super) fn environment() -> String {
    let head = "# GRUB Environment Block\n";
    format!("{head}{}", "#".repeat(ENVIRONMENT - head.len()))
}

/// What Debian's signed GRUB finds at its built-in place. It runs with `root` on the volume that GRUB was
/// loaded from; the search helps where firmware hides which volume that was.
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

/// The kernel command line of a slot. The last console is the one that `/dev/console` means.
pub(super) fn command_line(slot: Slot, volumes: &Volumes, arguments: &[String]) -> String {
    let root = match slot {
        Slot::A => volumes.root_a,
        Slot::B => volumes.root_b,
    };
    let mut words = vec![
        format!("root=PARTUUID={root}"),
        "rootfstype=squashfs".into(),
        "ro".into(),
        // Every partition is mounted by name; systemd shall not mount the ESP on its own.
        "systemd.gpt_auto=0".to_owned(),
        format!("nqrust.slot={}", slot.letter()),
        format!("nqrust.config=PARTUUID={}", volumes.config),
        format!("nqrust.persistent=PARTUUID={}", volumes.persistent),
    ];
    words.extend(volumes.data.map(|data| format!("nqrust.data=PARTUUID={data}")));
    words.extend(["console=tty0".into(), "console=ttyS0,115200".into()]);
    words.extend(arguments.iter().map(|argument| quote(argument)));
    words.join(" ")
}

/// The two places for an OS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    A,
    B,
}

impl Slot {
    pub(super) fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }
}

/// The node's `/grub/grub.cfg`. Slot b shows up once an update has put its kernel there.
pub(super) fn grub_cfg(release: &Release, line: impl Fn(Slot) -> String) -> String {
    let mut text = String::from(
        "set timeout=5\n\
         set default=nqrust-a\n\
         if [ -s ($root)/grub/grubenv ]; then\n\
         \x20 load_env --file ($root)/grub/grubenv nqrust_default\n\
         fi\n\
         if [ \"${nqrust_default}\" = \"b\" -a -f ($root)/nqrust/b/vmlinuz ]; then\n\
         \x20 set default=nqrust-b\n\
         fi\n\
         # UEFI firmware carries its own serial console; a second one on the same port would garble it.\n\
         if [ \"${grub_platform}\" = \"pc\" ]; then\n\
         \x20 if serial --unit=0 --speed=115200; then\n\
         \x20   terminal_input --append serial\n\
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
    let letter = slot.letter();
    let title = match slot {
        Slot::A => format!("{} {} (slot a)", release.name, release.version),
        // An update may bring another version than the one that wrote this file.
        Slot::B => format!("{} (slot b)", release.name),
    };
    format!(
        "menuentry {} --id nqrust-{letter} {{\n\
         \x20 linux ($root)/nqrust/{letter}/vmlinuz {line}\n\
         \x20 initrd ($root)/nqrust/{letter}/initrd\n\
         }}\n",
        quote(&title)
    )
}

/// A word for GRUB's shell, quoted where it has to be.
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

    #[test]
    fn the_volume_id_is_written_as_grub_prints_it() {
        assert!(stub(0x12AB_00CD).contains("--set=root 12AB-00CD\n"));
    }
}
