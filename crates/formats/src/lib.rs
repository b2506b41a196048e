//! Formats that others specified, read and written: partition tables, file systems of media and of the OS image, the initrd, documents
//! of container images, keys and signatures. Kernels and their modules are read.

pub mod delta;
pub mod dsse;
pub mod fat;
pub mod initrd;
pub mod iso9660;
pub mod kernel_image;
pub mod kernel_modules;
pub mod minisign;
pub mod module_signature;
pub mod oci;
pub mod partition_table;
pub mod squashfs;
pub mod verity;
