//! The screen and the serial line of a node: for the kernel, and for GRUB.

use model::architecture::Architecture;

/// The serial line for GRUB on a node whose configuration names none. GRUB uses one on BIOS only.
const DEFAULT_SERIAL: &str = "ttyS0,115200";

/// The screen and the serial lines: that of the configuration, or those that the architecture has. All show messages and a login; the
/// last one is `/dev/console`, where the system itself writes: a serial line, unless the configuration names a screen.
pub(super) fn consoles(architecture: Architecture, tty: Option<&str>) -> Vec<&str> {
    let screen = |tty: &str| tty.strip_prefix("tty").is_some_and(|rest| rest.parse::<u8>().is_ok());
    let usual = architecture.serial_lines();
    match tty {
        Some(tty) if screen(tty) => [usual, &[tty]].concat(),
        Some(tty) => vec!["tty0", tty],
        None => [&["tty0"], usual].concat(),
    }
}

/// The number and the speed of the serial port for GRUB. For ports that GRUB does not know, the first one.
pub(super) fn port(tty: Option<&str>) -> (u8, u32) {
    let line = tty.unwrap_or(DEFAULT_SERIAL);
    let (device, options) = line.split_once(',').unwrap_or((line, ""));
    let unit = device.strip_prefix("ttyS").and_then(|unit| unit.parse().ok()).filter(|unit| *unit < 4);
    let digits = options.find(|c: char| !c.is_ascii_digit()).unwrap_or(options.len());
    let speed = options[..digits].parse().ok().filter(|_| unit.is_some());
    // The kernel's own speed for a line without one is 9600 (Documentation/admin-guide/serial-console.rst).
    let unnamed = if unit.is_some() && tty.is_some() { 9600 } else { 115_200 };
    (unit.unwrap_or(0), speed.unwrap_or(unnamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_of_the_configuration_takes_the_place_of_the_usual_one() {
        for (tty, both, grub) in [
            (None, ["tty0", "ttyS0,115200"], (0, 115_200)),
            (Some("ttyS1,9600n8"), ["tty0", "ttyS1,9600n8"], (1, 9600)),
            (Some("ttyS0"), ["tty0", "ttyS0"], (0, 9600)),
            (Some("hvc0"), ["tty0", "hvc0"], (0, 115_200)),
            (Some("tty1"), ["ttyS0,115200", "tty1"], (0, 115_200)),
        ] {
            assert_eq!(consoles(Architecture::Amd64, tty), both);
            assert_eq!(port(tty), grub, "{tty:?}");
        }
        for (tty, all) in [
            (None, &["tty0", "ttyS0,115200", "ttyAMA0,115200"][..]),
            (Some("ttyAMA1"), &["tty0", "ttyAMA1"]),
            (Some("tty1"), &["ttyS0,115200", "ttyAMA0,115200", "tty1"]),
        ] {
            assert_eq!(consoles(Architecture::Arm64, tty), all);
        }
    }
}
