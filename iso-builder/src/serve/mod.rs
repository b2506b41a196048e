//! `iso-builder serve`: boots machines from the network and gives each its own configuration.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`files`], [`loaders`] | what of the medium and of this host is served |
//! | [`range`] | which bytes of a file a request is answered with |
//! | [`machines`], [`marks`] | the machines: their states, and by what they are found |
//! | [`nodes`], [`choose`] | the configurations, and which of them a request to boot is about |
//! | [`registry`], [`token`] | what may happen to a machine, and what opens its configuration |
//! | [`store`] | where the machines are kept |
//! | [`defaults`] | the medium's part of a configuration |
//! | [`hosts`] | which requests may change something |
//! | [`boot`] | the scripts that machines boot |
//! | [`fleet`] | what machines report, and the page that shows it |
//! | [`site`] | requests in, replies out |
//! | [`http`], [`body`] | the same in HTTP |
//! | [`direct`] | files over plain HTTP, without a detour through this program's memory |
//! | [`dnsmasq`] | DHCP and TFTP, by a program of that name |
//! | [`net`], `stream`, `tcp_info` | sockets |
//! | [`connections`], [`transfer_rate`] | how many connections there may be, and how slow they may be |
//! | [`tls`], [`authority`] | what secures them |
//! | [`state_directory`] | whether nobody else can change what the server keeps |
//! | [`run`] | the whole from start to end |
//!
//! [`direct`], [`dnsmasq`], [`net`], `stream`, `tcp_info` and [`run`] know sockets and processes; all else is free of them, and
//! the decisions are functions of values.

pub mod authority;
pub mod body;
pub mod boot;
pub mod choose;
pub mod connections;
pub mod defaults;
pub mod direct;
pub mod dnsmasq;
pub mod files;
pub mod fleet;
pub mod hosts;
pub mod http;
pub mod loaders;
pub mod machines;
pub mod marks;
pub mod net;
pub mod nodes;
pub mod range;
pub mod registry;
pub mod run;
pub mod site;
pub mod state_directory;
pub mod store;
mod stream;
mod tcp_info;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
pub mod token;
pub mod transfer_rate;
