//! The ISOs of the product: the bytes that the builder writes, and the check of a finished ISO against them.
//!
//! Two programs share this. `iso-builder build` writes an ISO from a [`Recipe`] and a [`Layout`](formats::iso9660::write::Layout); `iso-builder verify`
//! and the medium check of the installer derive both from the release manifest once more and compare ([`check`]).
//! What firmware, boot loaders and the kernel read is thereby *recomputed*: boot sector, partition tables, volume
//! descriptors, boot catalog, path tables, directories, boot menu and EFI system partition. Payloads are compared with
//! their digests in the manifest, the hash tree over the OS image with its root hash there, the customization area with its own digest,
//! everything else has to be zero.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`recipe`] | the files of an ISO, their order, and the content of those that are not payloads |
//! | [`menu`], [`esp`] | the boot menu, the EFI system partition |
//! | [`map`] | all of that as a list of regions without gaps, with owners and expected bytes |
//! | [`check`] | comparing an image with its map |
//!
//! [`formats::iso9660::write`] computes the layout and the bytes of boot sector, tables, descriptors and directories from the
//! recipe.
//!
//! # Why recomputing, and not a list of digests
//!
//! The boot menu names the digest of `release.json`, and so do the partition table, the EFI system partition and one
//! directory by way of values that are derived from it. `release.json` can therefore not hold their digests. A list of
//! digests with the release digest masked would avoid that, but an attacker who changes the menu could change the list: it
//! only proves that a medium is consistent. Recomputing proves that the menu is the one that this program writes for the
//! release, regardless of the medium.
//!
//! The manifest only adds [`IsoRecipe`](model::release::IsoRecipe): the number of the recipe, the root hash of the tree, and length and digest of
//! the two pieces of code that are not payloads (GRUB's El Torito image and its boot sector for USB sticks).
//!
//! # Recipes
//!
//! [`recipe::NUMBER`] changes with every change of the bytes that this module generates; a test with a known digest fails if
//! it does not. For another number, or a manifest of an older builder without one, only payloads are compared, and the
//! report says so: a change cannot be distinguished from another version.
//!
//! # Signatures
//!
//! Nothing here proves who made a release. [`SIGNATURES`](model::release::SIGNATURES), right behind the manifest, has the
//! signatures over the bytes of `release.json`, from which everything else on the medium follows. [`crate::signatures`] has
//! their form. Their bytes are the only ones, beside the customization area, that can change after a build; [`check`]
//! compares their form only. Whose signatures count is decided where the bytes of `release.json` become a
//! [`Release`](model::release::Release).

pub mod check;
pub mod esp;
pub mod map;
pub mod menu;
pub mod recipe;
#[cfg(test)]
pub mod tests;

pub use check::{CheckScope, RegionDifference, RegionFault, check};
pub use map::IsoMap;
pub use menu::Menu;
pub use recipe::Recipe;
