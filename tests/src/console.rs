//! Uses the consoles of a machine as a person would: types keys, and keeps what the screens show.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::artifacts::Artifacts;
use crate::qemu::Vm;

/// Ctrl+N, which every terminal can send in place of F8: confirms a screen.
pub const CTRL_N: char = '\u{e}';
/// Ctrl+F in place of F6: makes a token, and saves.
pub const CTRL_F: char = '\u{6}';
/// Ctrl+R in place of F5: tries again.
pub const CTRL_R: char = '\u{12}';
/// Ctrl+P in place of F9: help access.
pub const CTRL_P: char = '\u{10}';
/// Ctrl+U: clears the line.
pub const CTRL_U: char = '\u{15}';
pub const ESCAPE: char = '\u{1b}';
/// The arrow key, as a terminal sends it.
pub const DOWN: &str = "\u{1b}[B";
/// Page down, as a terminal sends it.
pub const PAGE_DOWN: &str = "\u{1b}[6~";

/// The time limit from a key to the next screen, if the network or a plan is needed for it.
pub const SCREEN_LIMIT: Duration = Duration::from_secs(180);

/// How many equal screenshots in a row, two seconds apart, mean that a screen is complete.
const EQUAL_SCREENSHOTS: u32 = 4;

/// Waits for one of several `words` on the serial terminal and keeps the screen as an artifact.
pub fn screen(vm: &mut Vm, words: &[&str], limit: Duration, artifacts: &Artifacts) -> Result<usize> {
    let index = vm.serial.wait_for_screen(words, limit)?;
    // The title comes first; a clock may be redrawn after that.
    vm.serial.rest(Duration::from_secs(3));
    artifacts.append("screens.txt", &format!("{}\n{}\n", vm.serial.screen(), "=".repeat(80)))?;
    Ok(index)
}

/// Keeps a screenshot once the screen has not changed for a while.
pub fn picture(vm: &mut Vm, name: &str, artifacts: &Artifacts) -> Result<()> {
    let path = artifacts.path(&format!("{name}.png"));
    let mut dump = || -> Result<Vec<u8>> {
        vm.qmp.screendump(&path)?;
        fs::read(&path).context("reading a picture of the screen")
    };
    let (began, mut before, mut same) = (Instant::now(), Vec::new(), 0);
    while same < EQUAL_SCREENSHOTS && began.elapsed() < SCREEN_LIMIT {
        std::thread::sleep(Duration::from_secs(2));
        let now = dump()?;
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

/// Presses the keys of a US keyboard for `text`.
pub fn press(vm: &mut Vm, text: &str) -> Result<()> {
    // One character for each key.
    for character in text.replace(DOWN, "\u{2193}").chars() {
        let (name, shift) = key(character)?;
        let keys = if shift { vec!["shift", &name] } else { vec![name.as_str()] };
        vm.qmp.send_key(&keys)?;
        // QEMU holds a key for a tenth of a second.
        std::thread::sleep(Duration::from_millis(150));
    }
    Ok(())
}

/// QEMU's name of the key for a character, and whether it needs Shift.
fn key(character: char) -> Result<(String, bool)> {
    let (name, shift) = match character {
        '\u{2193}' => ("down", false),
        CTRL_N => ("f8", false),
        CTRL_F => ("f6", false),
        CTRL_R => ("f5", false),
        CTRL_P => ("f9", false),
        ESCAPE => ("esc", false),
        '\r' => ("ret", false),
        '\t' => ("tab", false),
        ' ' => ("spc", false),
        '-' => ("minus", false),
        '_' => ("minus", true),
        '.' => ("dot", false),
        '/' => ("slash", false),
        '=' => ("equal", false),
        '+' => ("equal", true),
        '@' => ("2", true),
        '$' => ("4", true),
        CTRL_U => bail!("a line is taken back on the serial terminal only"),
        _ if character.is_ascii_alphanumeric() => {
            return Ok((character.to_ascii_lowercase().to_string(), character.is_ascii_uppercase()));
        }
        _ => bail!("no key is known for {character:?}"),
    };
    Ok((name.to_owned(), shift))
}

/// Plugs the raw image `stick` in as a USB stick.
pub fn plug_in(vm: &mut Vm, stick: &Path) -> Result<()> {
    let node = serde_json::json!({
        "driver": "raw", "node-name": "stick", "file": { "driver": "file", "filename": stick },
    });
    vm.qmp.execute("blockdev-add", node)?;
    let device = serde_json::json!({
        "driver": "usb-storage", "id": "stick", "bus": "usb.0", "drive": "stick", "removable": true, "serial": "4C530001",
    });
    vm.qmp.execute("device_add", device).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_keys_and_passwords_is_on_the_keyboard() {
        for character in
            "ssh-ed25519 AAAA+/= e2e\tMark_1.x\r".chars().chain([CTRL_N, CTRL_F, CTRL_R, CTRL_P, ESCAPE])
        {
            key(character).unwrap();
        }
        assert_eq!(key('K').unwrap(), ("k".to_owned(), true));
        assert!(key(CTRL_U).is_err() && key('\u{e9}').is_err());
    }
}
