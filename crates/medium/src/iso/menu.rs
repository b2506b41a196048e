//! The boot menu of a medium.

use crate::customization::{GRUB_FILE, argument};
use base::digest::Digest;
use model::architecture::Architecture;
use model::boot::parameter::{MODE, RELEASE};
use model::config::boot_password::PROTECT;

#[derive(Clone, Debug)]
pub struct Menu<'a> {
    pub architecture: Architecture,
    /// The product and its version, as the menu's title.
    pub title: String,
    pub volume: String,
    /// Digest of `release.json`.
    pub release: Digest,
    /// Kernel arguments of the definition.
    pub arguments: &'a [String],
    /// The file with the password of the menu's editor and command line, if the medium is built with one.
    pub password: Option<&'a str>,
}

/// Kernel arguments for screen and serial lines with the screen as `/dev/console`, which the last one is.
#[must_use]
pub fn screen_first(architecture: Architecture) -> String {
    consoles(architecture.serial_lines().iter().copied().chain([SCREEN]))
}

/// The same with a serial line as `/dev/console`.
fn serial_first(architecture: Architecture) -> String {
    consoles([SCREEN].into_iter().chain(architecture.serial_lines().iter().copied()))
}

const SCREEN: &str = "tty0";

fn consoles<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("console={name}")).collect::<Vec<_>>().join(" ")
}

#[must_use]
pub fn volume_id(text: &str) -> String {
    let upper = text.to_ascii_uppercase();
    let plain = upper.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    plain.take(32).collect()
}

impl Menu<'_> {
    /// The file by which a boot loader recognizes the medium it belongs to.
    #[must_use]
    pub fn mark(&self) -> String {
        format!(".nqrust/{}", &self.release.to_string()[..16])
    }

    /// A file on the EFI system partition of every medium that distinguishes it from that of a disk.
    pub const ESP_MARK: &'static str = ".nqrust/medium";

    /// `/EFI/debian/grub.cfg`, where the signed GRUB begins: finds this very medium, whatever other media are
    /// in the machine, and goes on with the menu there: as its own menu, because Esc in a menu within another one leads
    /// to a command line that knows of no password.
    #[must_use]
    pub fn stub(&self) -> String {
        format!(
            "search --no-floppy --file --set=root /{}\n\
             set prefix=($root)/boot/grub\n\
             source /boot/grub/grub.cfg\n",
            self.mark()
        )
    }

    /// `/boot/grub/grub.cfg`.
    #[must_use]
    pub fn render(&self) -> String {
        let (screen, serial) = (screen_first(self.architecture), serial_first(self.architecture));
        let install = self.entry("Install", "install", "install", &screen);
        let serial = self.entry("Install (serial console)", "install-serial", "install", &serial);
        let check = self.entry("Check this medium", "check", "check", &screen);
        let local = local(self.architecture);
        // Started from a BIOS, the root is the drive that the firmware read, which may be another copy of a medium.
        let find = format!(
            "if [ ! -e /{0} ]; then\n    search --no-floppy --file --set=root /{0}\nfi\n",
            self.mark()
        );
        // The customization of the finished medium.
        let custom = format!("source /{GRUB_FILE}\n");
        // The password is set first, so that any later failure is behind it, even if its file is missing. A password of the
        // customization replaces it.
        let protect = if self.password.is_some() { PROTECT } else { "" };
        let password = self.password.map(|path| format!("source /{path}\n")).unwrap_or_default();
        format!(
            "# {}\n{protect}{HEAD}{find}{password}{custom}\n{install}\n{serial}\n{local}\n{check}",
            self.title
        )
    }

    fn entry(&self, title: &str, id: &str, mode: &str, consoles: &str) -> String {
        let arguments: String = self.arguments.iter().map(|argument| format!(" {argument}")).collect();
        format!(
            "menuentry \"{title}\" --id {id} --unrestricted {{\n\
             \x20   echo \"Loading the kernel ...\"\n\
             \x20   linux /boot/vmlinuz {live} {MODE}={mode} {RELEASE}={release} {consoles}{arguments} ${custom}\n\
             \x20   echo \"Loading the initial RAM disk ...\"\n\
             \x20   initrd /boot/initrd\n\
             }}\n",
            live = self.live_arguments(),
            release = self.release.oci(),
            custom = argument::VARIABLE,
        )
    }

    /// How dracut finds the medium (dracut.cmdline(7), "Booting live images"). The OS image on it is opened by our own program.
    fn live_arguments(&self) -> String {
        format!("root=live:CDLABEL={} rd.live.image rd.live.overlay.overlayfs=1 rd.shell=0", self.volume)
    }
}

/// Screen and serial port show the menu and take keys. On UEFI the firmware's console does both; a BIOS machine
/// without a serial port refuses the first command and keeps its screen.
const HEAD: &str = "\
set timeout=10
set default=install
if [ \"$grub_platform\" = \"pc\" ]; then
    if serial --unit=0 --speed=115200; then
        terminal_input console serial
        terminal_output console serial
    fi
fi
";

/// The entry that starts the first other disk that has a loader. On UEFI that is the default loader of any partition which does
/// not bear the mark of a medium; shim looks for GRUB on the device that is root. On BIOS the disk becomes the
/// first drive, where its loader expects itself.
fn local(architecture: Architecture) -> String {
    LOCAL.replace("LOADER", architecture.loaders().shim)
}

const LOCAL: &str = "\
menuentry \"Boot from local disk\" --id local --unrestricted {
    if [ \"$grub_platform\" = \"efi\" ]; then
        for disk in hd0 hd1 hd2 hd3 hd4 hd5 hd6 hd7; do
            for part in gpt1 gpt2 gpt3 gpt4 gpt5 gpt6 gpt7 gpt8 msdos1 msdos2 msdos3 msdos4; do
                if [ -f \"($disk,$part)/LOADER\" -a ! -f \"($disk,$part)/.nqrust/medium\" ]; then
                    echo \"Starting ($disk,$part)/LOADER ...\"
                    set root=\"$disk,$part\"
                    if chainloader /LOADER; then boot; fi
                fi
            done
        done
        echo \"No disk has a boot loader. Returning to the firmware.\"
        sleep --interruptible 3
        exit
    fi
    set medium=\"$root\"
    regexp --set=1:drive '^(hd[0-9]+)' \"$root\"
    for disk in hd0 hd1 hd2 hd3 hd4 hd5 hd6 hd7; do
        if [ \"$disk\" != \"$drive\" ]; then
            set root=\"$disk\"
            if [ \"$disk\" != hd0 ]; then drivemap -s hd0 \"$disk\"; fi
            if chainloader +1; then boot; fi
            drivemap -r
        fi
    done
    set root=\"$medium\"
    echo \"No other disk has a boot sector.\"
    sleep --interruptible 10
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_reads_as_intended() {
        let arguments = ["intel_iommu=on".to_owned()];
        let menu = Menu {
            architecture: Architecture::Amd64,
            title: "NQRust Hypervisor 1.0".into(),
            volume: "NQRUST_1_0".into(),
            release: Digest::of(b""),
            arguments: &arguments,
            password: None,
        };
        let text = menu.render();
        assert!(text.starts_with("# NQRust Hypervisor 1.0\nset timeout=10\nset default=install\n"), "{text}");
        for id in ["install", "install-serial", "local", "check"] {
            assert!(text.contains(&format!("--id {id} --unrestricted {{")), "{id}");
        }
        let linux = text.lines().find(|line| line.trim_start().starts_with("linux ")).unwrap();
        assert_eq!(
            linux.trim(),
            "linux /boot/vmlinuz root=live:CDLABEL=NQRUST_1_0 rd.live.image rd.live.overlay.overlayfs=1 rd.shell=0 \
             nqrust.mode=install \
             nqrust.release=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 \
             console=ttyS0,115200 console=tty0 intel_iommu=on $nqrust_arguments"
        );
        assert!(text.find("\nsource /boot/grub/custom.cfg\n") < text.find("menuentry"), "{text}");
        assert!(menu.stub().contains("--file --set=root /.nqrust/e3b0c44298fc1c14\n"));
        assert!(!text.contains("superusers"), "{text}");
    }

    #[test]
    fn the_menu_for_arm64_names_its_loader_and_its_serial_lines() {
        let menu = Menu {
            architecture: Architecture::Arm64,
            title: "NQRust".into(),
            volume: "NQRUST".into(),
            release: Digest::of(b""),
            arguments: &[],
            password: None,
        };
        let text = menu.render();
        assert!(text.contains("chainloader /EFI/BOOT/BOOTAA64.EFI") && !text.contains("X64"), "{text}");
        let lines: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("linux ")).collect();
        let consoles = [
            "console=ttyS0,115200 console=ttyAMA0,115200 console=tty0",
            "console=tty0 console=ttyS0,115200 console=ttyAMA0,115200",
            "console=ttyS0,115200 console=ttyAMA0,115200 console=tty0",
        ];
        for (line, consoles) in lines.iter().zip(consoles) {
            assert!(line.contains(&format!(" {consoles} ")), "{line}");
        }
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_boot_password_shuts_the_menu_before_anything_else_and_no_entry() {
        let menu = Menu {
            architecture: Architecture::Amd64,
            title: "NQRust".into(),
            volume: "NQRUST".into(),
            release: Digest::of(b""),
            arguments: &[],
            password: Some("boot/grub/password.cfg"),
        };
        let text = menu.render();
        let head = "# NQRust\nset superusers=\"root\"\nexport superusers\nset timeout=10\n";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("\nfi\nsource /boot/grub/password.cfg\nsource /boot/grub/custom.cfg\n"),
            "{text}"
        );
        let entries: Vec<_> = text.lines().filter(|line| line.starts_with("menuentry ")).collect();
        assert!(
            entries.len() == 4 && entries.iter().all(|entry| entry.contains(" --unrestricted {")),
            "{text}"
        );
        // A menu within another one is left with Esc, for a command line without a password.
        assert!(
            !menu.stub().contains("configfile") && menu.stub().contains("\nsource /boot/grub/grub.cfg\n")
        );
    }

    #[test]
    fn a_volume_id_has_only_what_iso_9660_allows() {
        assert_eq!(volume_id("nqrust-hypervisor-0.1.0~rc1"), "NQRUST_HYPERVISOR_0_1_0_RC1");
        assert_eq!(volume_id(&"x".repeat(40)).len(), 32);
    }
}
