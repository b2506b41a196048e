//! Text for GRUB's shell, and the file by which a slot tells it about itself.

/// The name of that file in a slot's boot volume.
pub const SLOT_FILE: &str = "slot.cfg";
/// The file with the kernel arguments that follow from `os.host`, from the root of the EFI system partition. The only one beside the
/// boot record that a node changes: all of it is one sector, which a disk writes whole or not at all.
pub const HOST_FILE: &str = "grub/host.cfg";
pub const HOST_FILE_BYTES: usize = 512;
/// The most bytes that the arguments of that file can have, with the spaces between them.
pub const HOST_WORDS_BYTES_MAX: usize = HOST_FILE_BYTES - HOST_BEGIN.len() - HOST_END.len();
/// The archive that the boot loader adds to the initrd of a node whose disks are reached over the network, from the root of the EFI
/// system partition: how they are reached, with passwords.
pub const NETWORK_DISKS_FILE: &str = "grub/disks.img";
const HOST_BEGIN: &str = "set nq_host='";
const HOST_END: &str = "'\n";
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

/// The file [`HOST_FILE`]: one variable, then line ends up to the length of the file. The words need no quotes, and are no longer than
/// [`HOST_WORDS_BYTES_MAX`] together; a document with more of them is refused.
#[must_use]
pub fn host_cfg(words: &[String]) -> String {
    let mut text = format!("{HOST_BEGIN}{}{HOST_END}", words.join(" "));
    let filler = HOST_FILE_BYTES.saturating_sub(text.len());
    text.extend(std::iter::repeat_n('\n', filler));
    text
}

/// The words of the file [`HOST_FILE`]; `None` if it has another form.
#[must_use]
pub fn host_words(text: &str) -> Option<Vec<String>> {
    let (words, _) = text.strip_prefix(HOST_BEGIN)?.split_once(HOST_END)?;
    Some(words.split_ascii_whitespace().map(str::to_owned).collect())
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
    fn the_arguments_of_the_host_are_one_sector_whatever_they_are() {
        for words in [vec![], vec!["iommu=pt".to_owned(), "isolcpus=2-7,10".to_owned()]] {
            let text = host_cfg(&words);
            assert_eq!(text.len(), HOST_FILE_BYTES);
            assert_eq!(host_words(&text), Some(words));
        }
        let most = "a".repeat(HOST_WORDS_BYTES_MAX);
        assert_eq!(host_cfg(&[most]).len(), HOST_FILE_BYTES);
        assert_eq!(host_words("set nq_host='unclosed"), None);
    }

    #[test]
    fn a_kernel_argument_cannot_end_its_line() {
        assert_eq!(quote("quiet"), "quiet");
        assert_eq!(quote("module.option=a b;c"), "'module.option=a b;c'");
        assert_eq!(quote("x='y'\n}"), r"'x='\''y'\''}'");
    }
}
