//! Text for GRUB's shell, and the file by which a slot tells it about itself.

/// The name of that file in a slot's boot volume.
pub const SLOT_FILE: &str = "slot.cfg";
/// The names of kernel and initrd beside it.
pub const KERNEL_FILE: &str = "vmlinuz";
pub const INITRD_FILE: &str = "initrd";

/// Two variables: what the menu calls the slot, and the kernel arguments of its release. Those are words as a release manifest allows
/// them: GRUB splits them at spaces and looks for nothing else in them.
#[must_use]
pub fn slot_cfg(title: &str, kernel_arguments: &[String]) -> String {
    let words = kernel_arguments.join(" ");
    format!("set slot_title={}\nset slot_words={}\n", quote(title), quote(&words))
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
    fn a_slot_names_its_release_and_its_arguments() {
        let words = ["quiet".to_owned(), "a=1,2".to_owned()];
        let text = slot_cfg("Maker's 1.2", &words);
        assert_eq!(text, "set slot_title='Maker'\\''s 1.2'\nset slot_words='quiet a=1,2'\n");
        assert!(slot_cfg("x", &[]).ends_with("set slot_words=''\n"));
    }

    #[test]
    fn a_kernel_argument_cannot_end_its_line() {
        assert_eq!(quote("quiet"), "quiet");
        assert_eq!(quote("module.option=a b;c"), "'module.option=a b;c'");
        assert_eq!(quote("x='y'\n}"), r"'x='\''y'\''}'");
    }
}
