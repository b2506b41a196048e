//! The ISOs of the product: what the builder writes at every byte, and whether a finished one still has it.
//!
//! Two programs share this. `iso-builder build` writes an ISO from a [`Recipe`] and a [`Layout`](formats::iso9660::write::Layout); `iso-builder verify`
//! and the medium check of the installer derive both from the release manifest once more and compare ([`check`]).
//! What firmware, boot loaders and the kernel read is thereby *recomputed*: boot sector, partition tables, volume
//! descriptors, boot catalogue, path tables, directories, boot menu and EFI system partition. Payloads are compared with
//! their digests in the manifest, the customization area with its own, everything else has to be zero.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`recipe`] | which files an ISO has, in which order, and what is in those that are no payloads |
//! | [`menu`], [`esp`] | the boot menu, the EFI system partition |
//! | [`map`] | all of that as a list without gaps: who owns which bytes, and what they have to be |
//! | [`check`] | comparing an image with its map |
//!
//! Where everything lies, and the bytes of boot sector, tables, descriptors and directories, follow from the recipe by
//! [`formats::iso9660::write`].
//!
//! # Why recomputing, and not a list of digests
//!
//! The boot menu names the digest of `release.json`, and so do the partition table, the EFI system partition and one
//! directory by way of values that are derived from it. `release.json` can therefore not hold their digests. A list of
//! digests with the release digest masked would go round that, but whoever changes the menu could change the list: it
//! proves that a medium agrees with itself. Recomputing proves that the menu is the one which this program writes for
//! such a release, whatever the medium says about it.
//!
//! All that the manifest adds is [`IsoRecipe`](model::release::IsoRecipe): the number of the recipe, and length and digest of the two pieces of code
//! that are on no medium as payloads (GRUB's El Torito image and its boot sector for sticks).
//!
//! # Recipes
//!
//! [`recipe::NUMBER`] changes with every change of the bytes that come out of this module; a test with a known digest
//! turns red when somebody forgets that. A program that meets another number, or a manifest of an older builder without
//! one, compares payloads alone and says so: it cannot tell a change from another version.
//!
//! # Signatures
//!
//! Nothing here proves who made a release: the manifest is believed. A signature belongs over the bytes of
//! `release.json`, in a file beside it, and is to be checked where these bytes become a [`Release`](model::release::Release):
//! [`read_release`](crate::sources::read_release) in the installer and `Medium::release` in `iso-builder`. Everything else
//! on a medium follows from those bytes, so that nothing else needs a signature.

pub mod check;
pub mod esp;
pub mod map;
pub mod menu;
pub mod recipe;
#[cfg(test)]
pub mod tests;

pub use check::{Difference, Fault, Scope, check};
pub use map::Map;
pub use menu::Menu;
pub use recipe::Recipe;
