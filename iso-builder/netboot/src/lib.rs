//! `iso-builder serve`: boots machines from the network and gives each its own configuration.
//!
//! | Module | Content |
//! |---|---|
//! | [`files`], [`loaders`] | the served files of the medium and of this host |
//! | [`fetched`] | the copy of a medium that another server has |
//! | [`machine`], [`machine_id`], [`moment`], [`identity_keys`] | machines: their states, and the identifiers by which they are found |
//! | [`configurations`], [`choose`] | the configurations, and the record for a request to boot |
//! | [`machine_registry`], [`token`] | changes of machines' records, and the tokens of boot scripts |
//! | [`machine_store`] | the database of machines |
//! | [`defaults`] | the medium's part of a configuration |
//! | [`hosts`] | which requests may change something |
//! | [`boot`] | the scripts that machines boot |
//! | [`journal`] | the log of the server |
//! | [`stranger_rate`] | how many requests of unknown machines are recorded |
//! | [`fleet`] | reports of machines, and the page that shows them |
//! | [`router`] | replies to requests |
//! | [`http`], [`fleet_http`], [`response`] | the same in HTTP |
//! | [`sendfile`] | files over plain HTTP by sendfile(2) |
//! | [`dnsmasq`] | DHCP and TFTP, by the program of that name |
//! | [`net`] | connections |
//! | [`tls`], [`authority`] | HTTPS |
//! | [`state_directory`] | that nobody else can change the state directory |
//! | [`run`] | the server from start to end |
//!
//! Only [`sendfile`], [`dnsmasq`], [`net`] and [`run`] deal with sockets and processes. Decisions are
//! functions of values.

pub mod authority;
pub mod boot;
pub mod choose;
pub mod configurations;
pub mod defaults;
pub mod dnsmasq;
pub mod fetched;
pub mod files;
pub mod fleet;
pub mod fleet_http;
pub mod hosts;
pub mod http;
pub mod identity_keys;
pub mod journal;
pub mod loaders;
pub mod machine;
pub mod machine_id;
pub mod machine_registry;
pub mod machine_store;
pub mod moment;
pub mod net;
pub mod response;
pub mod router;
pub mod run;
pub mod sendfile;
pub mod state_directory;
pub mod stranger_rate;
#[cfg(test)]
pub(crate) mod test_support;
pub mod tls;
pub mod token;
