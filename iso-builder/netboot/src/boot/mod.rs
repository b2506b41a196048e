//! The boot of a machine before its installer runs: its loader by DHCP and TFTP, and the script that its loader follows.
//! What a machine may do is decided in [`machines`](crate::machines); the rooms [`server`](crate::server) and `cli` of the
//! builder call this.

pub mod dnsmasq;
pub mod scripts;
