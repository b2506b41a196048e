//! Text for GRUB's shell, and the file by which a slot tells it about itself.

use crate::release::Release;

/// The name of that file in a slot's boot volume.
pub const SLOT_FILE: &str = "slot.cfg";

/// Two variables: what the menu calls the slot, and the kernel arguments of its release. Those are words that
/// [`crate::release::is_boot_menu_word`] allows: GRUB splits them at spaces and looks for nothing else in them.
#[must_use]
pub fn slot_cfg(release: &Release) -> String {
    let title = format!("{} {}", release.name, release.version);
    let words = release.kernel_arguments.join(" ");
    format!("set slot_title={}\nset slot_words={}\n", quote(&title), quote(&words))
}

/// A word for GRUB's shell, quoted if necessary.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_=.,:/@+-%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let visible: String = word.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", visible.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_argument_cannot_end_its_line() {
        assert_eq!(quote("quiet"), "quiet");
        assert_eq!(quote("module.option=a b;c"), "'module.option=a b;c'");
        assert_eq!(quote("x='y'\n}"), r"'x='\''y'\''}'");
    }
}
