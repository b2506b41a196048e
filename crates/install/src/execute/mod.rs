//! The executor: carries out a plan, and only a plan.
//!
//! The order of writes is the safety of an install. Every check that can be made before the first write is made before it; the
//! disk is unbootable from the first write on; and the last write, one sector, makes it bootable after everything else has been
//! flushed and read back. A failure or a power cut in between leaves a disk that does not boot, and that the next run continues
//! or starts over ([`take_up`]).
//!
//! `run` goes through the steps of a plan with its `RunEffects`. The steps are in folders by subject: `disk` is the lowest;
//! `payload`, `boot` and `data` write on it; `resume` continues an interrupted install.
//! [`OpenSlot`] is for updates, which write a slot of a node that runs from another one, and for repairs of the slot that runs.

mod boot;
mod data;
mod disk;
mod disk_image;
mod disk_replacement;
mod effects;
mod kernel_calls;
mod payload;
mod resume;
mod run;
mod slot_repair;
mod slot_update;

pub use boot::esp::read_esp;
pub use boot::finish::{ask_for, finish};
pub use boot::host_file::change_host_words;
pub use boot::load::KernelToLoad;
pub use boot::record::{ChangedRecord, change_record};
pub use boot::start::start_node;
pub use data::renew::renew_filesystem;
pub use disk::device::BlockDevice;
pub use disk::filesystems::{FilesystemCheck, NewFilesystem, check_filesystem};
pub(crate) use disk::host::own_mount_namespace;
pub use disk::host::{Host, MountAccess, MountedFilesystem, SystemHost, with_mount};
pub use disk::mirror::MadeArray;
pub use disk::open_disk::OpenDisk;
pub use disk::takedown::take_down;
pub use disk_image::{DiskFile, Growth, ImageHost, grow_filesystem};
pub use disk_replacement::{
    FirmwareEntry, ReplacementEffects, await_arrays, replace_disk, was_started_alone,
};
pub use effects::{DiskOpener, RunEffects};
pub use payload::import::{
    IMAGES_SPARE_ROOM, ImportOutcome, MissingImages, RunningContainerd, import_missing, missing_images,
};
pub use payload::install_files::{
    forget_install_files, install_files, install_files_directory, keep_install_files,
};
pub use payload::node_files::{DEFAULTS, DOCUMENT};
pub use payload::seed::seed_store;
pub use payload::slot_source::SlotSource;
pub use payload::unpack::Unpacking;
pub use resume::unfinished::take_up;
pub use run::execute;
pub use slot_repair::{DamagedPart, SlotCheck, SlotDamage};
pub use slot_update::{OpenSlot, SlotPlace, require_slot_room, slot_payloads};

#[cfg(test)]
mod tests;
