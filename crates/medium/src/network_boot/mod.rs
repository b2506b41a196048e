//! What a server gives to machines that start over the network, whichever program it is part of: the files of a release, the
//! loaders, and the commands with which a loader starts the installing system. Which machine may start it is the server's matter.

pub mod files;
pub mod loaders;
pub mod system;

/// The release's files; those below its digest never change.
pub const MEDIUM: &str = "/medium/";
/// The first script of iPXE.
pub const IPXE_START: &str = "/boot.ipxe";
/// The first commands of GRUB.
pub const GRUB_START: &str = "/grub/grub.cfg";
/// Where loaders are served, for firmware that boots over HTTP.
pub const LOADERS: &str = "/loaders/";
