//! `iso-builder serve`: boots machines from the network and gives each its own configuration.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`files`], [`loaders`] | what of the medium and of this host is served |
//! | [`range`] | which bytes of a file a request is answered with |
//! | [`machine`], [`machine_id`], [`moment`], [`identity_keys`] | the machines: their states, and by what they are found |
//! | [`configurations`], [`choose`] | the configurations, and which of them a request to boot is about |
//! | [`machine_registry`], [`token`] | what may happen to a machine, and what opens its configuration |
//! | [`machine_store`] | where the machines are kept |
//! | [`defaults`] | the medium's part of a configuration |
//! | [`hosts`] | which requests may change something |
//! | [`boot`] | the scripts that machines boot |
//! | [`fleet`] | what machines report, and the page that shows it |
//! | [`router`] | requests in, replies out |
//! | [`http`], [`fleet_http`], [`body`] | the same in HTTP |
//! | [`sendfile`] | files over plain HTTP, without a detour through this program's memory |
//! | [`dnsmasq`] | DHCP and TFTP, by a program of that name |
//! | [`net`], `stream`, `tcp_info` | sockets |
//! | [`connection_limit`], [`transfer_rate`] | how many connections there may be, and how slow they may be |
//! | [`tls`], [`authority`] | what secures them |
//! | [`state_directory`] | whether nobody else can change what the server keeps |
//! | [`run`] | the whole from start to end |
//!
//! [`sendfile`], [`dnsmasq`], [`net`], `stream`, `tcp_info` and [`run`] know sockets and processes; all else is free of them,
//! and the decisions are functions of values.

pub mod authority;
pub mod body;
pub mod boot;
pub mod choose;
pub mod configurations;
pub mod connection_limit;
pub mod defaults;
pub mod dnsmasq;
pub mod files;
pub mod fleet;
pub mod fleet_http;
pub mod hosts;
pub mod http;
pub mod identity_keys;
pub mod loaders;
pub mod machine;
pub mod machine_id;
pub mod machine_registry;
pub mod machine_store;
pub mod moment;
pub mod net;
pub mod range;
pub mod response;
pub mod router;
pub mod run;
pub mod sendfile;
pub mod state_directory;
mod stream;
mod tcp_info;
#[cfg(test)]
pub(crate) mod test_support;
pub mod tls;
pub mod token;
pub mod transfer_rate;
