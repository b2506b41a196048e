//! Media: ISOs and the netboot set, assembled from finished payloads.

pub mod checksums;
pub mod iso;
