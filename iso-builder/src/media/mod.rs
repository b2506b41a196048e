//! Media: ISOs and the netboot set, assembled from finished payloads.

pub mod checksums;
pub mod esp;
pub mod iso;
