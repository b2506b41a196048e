//! `/grub/grub.cfg`: a few lines that differ from node to node, then the script, which is the same on all.
//!
//! No update changes it. What an update may change is in the boot volumes and in the boot record.

use model::config::InstallConfig;
use model::config::boot_password::PROTECT;

use super::consoles::port;
use crate::plan::slot::SlotGeometry;

/// The functions of the script. They decide as [`model::boot::loader::decide`] does.
pub const LOADER_SCRIPT: &str = include_str!("loader.cfg");
const MENU: &str = include_str!("menu.cfg");

/// The file with the password of GRUB's menu, from the root of the EFI system partition.
pub(crate) const PASSWORD: &str = "grub/password.cfg";

/// The node's `/grub/grub.cfg`.
pub(crate) fn grub_cfg(config: &InstallConfig, geometry: SlotGeometry) -> String {
    // The password is in a file of its own, because this one is printed with the plan.
    let password = match config.os.boot_password {
        Some(_) => format!("{PROTECT}source ($root)/{PASSWORD}\n"),
        None => String::new(),
    };
    let (unit, speed) = port(config.install.tty.as_deref());
    let blocks = geometry.boot_blocks();
    format!(
        "{password}\
         # UEFI firmware carries its own serial console; a second one on the same port would garble it.\n\
         if [ \"${{grub_platform}}\" = \"pc\" ]; then\n\
         \x20 if serial --unit={unit} --speed={speed}; then\n\
         \x20   terminal_input --append serial\n\
         \x20   terminal_output --append serial\n\
         \x20 fi\n\
         fi\n\
         # Where the boot volume begins in a slot and how long it is, in units of 512 bytes.\n\
         set nq_volume={blocks}\n\n\
         {LOADER_SCRIPT}\n\
         source ($root)/grub/node.cfg\n\n\
         {MENU}"
    )
}
