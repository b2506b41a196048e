//! Formats that others specified, read and written: partition tables, file systems of media, documents of container images.

pub mod fat;
pub mod iso9660;
pub mod oci;
pub mod partition_table;
pub mod verity;
