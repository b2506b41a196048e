//! Updates of a node: a release is written into the slot that does not run, tried, and kept or rolled back.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`updated_node`] | the node: what changes its slots, its boot record and its memory |
//! | [`slots`] | the partitions of the slots, from sysfs |
//! | [`offer`] | whether a release may take the place of the one that runs; pure |
//! | [`hardware`] | what this node would lose under a release |
//! | [`room`] | what an update takes of the file systems of this node |
//! | [`certificates`] | the certificates without which this node would not come back to its cluster |
//! | [`floor`](mod@floor) | the lowest rollback index that a release for this node may have; pure |
//! | [`patched`] | a release whose OS image is made from the one that runs and a patch |
//! | [`tried_release`] | the result of the release that was tried; pure |
//! | [`fetched`] | a release that came over a network, kept until it is in a slot |
//! | [`release_files`] | the files of a release that this node has, fetched or in its slots |
//! | [`serve`] | this node as the source of other nodes, and of machines that have no system |
//! | [`stage`] | the progress of an update, for status and reports; pure |
//! | [`cluster_report`] | the same for the cluster; pure |
//! | [`lock`] | one update at a time |
//!
//! Two single sectors decide what starts: the commit mark of a slot, written after all of it was read back, and the boot record.
//! Everything else may be cut off at any moment, and is done again by the next run.

pub mod certificates;
pub mod cluster_report;
pub mod fetched;
pub mod floor;
pub mod hardware;
pub mod lock;
pub mod offer;
pub mod patched;
pub mod release_files;
pub mod room;
pub mod serve;
pub mod slots;
pub mod stage;
pub mod tried_release;
pub mod updated_node;

pub use certificates::CertificateVerdict;
pub use fetched::{KeptSource, fetched, fetched_release, forget};
pub use floor::{FloorSlot, floor};
pub use hardware::HardwareVerdict;
pub use lock::UpdateLock;
pub use offer::{OfferStatus, RunningSystem, UpdatePermissions, decide, kubernetes_step};
pub use room::{StoredPart, UpdateRoom};
pub use slots::{NodeSlots, SlotDevices};
pub use stage::UpdateStage;
pub use tried_release::TriedRelease;
pub use updated_node::{Rollback, UpdatedNode};
