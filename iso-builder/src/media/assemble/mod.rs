//! Media: ISOs and the netboot set, assembled from finished payloads.

pub mod checksums;
mod from_recipe;
pub mod iso;

pub(crate) use from_recipe::{assemble, blank_area, iso_recipe};
