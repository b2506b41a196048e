//! The disks and network cards of a machine, from a file printed by `installer inventory`.

use std::path::Path;

use anyhow::Result;

use base::failure::{Class, Classify};
use base::files::named;
use machine::inventory::Inventory;

/// # Errors
/// `Class::Invalid` for a file that cannot be read, or has another format.
pub(crate) fn read_inventory(path: &Path) -> Result<Inventory> {
    let what = || format!("reading the inventory {}", named::told(path));
    serde_json::from_str(&named::read_text(path).class(Class::Invalid, what)?).class(Class::Invalid, what)
}
