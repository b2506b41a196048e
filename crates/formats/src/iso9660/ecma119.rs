//! Numbers of ECMA-119 that reading and writing share.

use super::address::Block;

/// The first volume descriptor. What precedes it belongs to boot code and partition tables (6.2.1).
pub(super) const DESCRIPTORS: Block = Block(16);

/// The type of the primary volume descriptor (8.4.1).
pub(super) const PRIMARY: u8 = 1;
/// The type of the descriptor that ends the list (8.3.1).
pub(super) const TERMINATOR: u8 = 255;

/// Flag of a directory record: it is a directory (9.1.6).
pub(super) const DIRECTORY: u8 = 0x02;
/// Flag of a directory record: it belongs to another one (resource forks and the like).
pub(super) const ASSOCIATED: u8 = 0x04;
/// Flag of a directory record: the next one continues this file. The only way to have files of 4 GiB and more.
pub(super) const CONTINUED: u8 = 0x80;
