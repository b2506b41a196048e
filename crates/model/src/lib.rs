//! The types that both programs share: the configuration of a node, the cluster file, the release manifest, what a machine is,
//! and what a node reports. Values, their readers and their rules; nothing here opens a device or a connection.

pub mod architecture;
pub mod boot;
pub mod checks;
pub mod cluster_file;
pub mod config;
pub mod disk_protocol;
pub mod fleet;
pub mod hardware;
pub mod kernel_line;
pub mod kubernetes;
pub mod machine;
pub mod machine_documents;
pub mod network_disks;
pub mod os_image;
pub mod release;
pub mod release_manifest;
pub mod rollback_index;
