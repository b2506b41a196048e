//! The files of the boot loader on the EFI system partition, but for its environment block: GRUB's configuration, which is
//! the same on every node but for a few numbers, and the words of the node.

mod consoles;
mod node;
mod script;

pub use script::LOADER_SCRIPT;

pub(super) use node::{Volumes, longest_line, node_cfg};
pub(super) use script::{PASSWORD, grub_cfg};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_id_is_written_as_grub_prints_it() {
        assert!(stub(0x12AB_00CD).contains("--set=root 12AB-00CD\n"));
    }
}
