//! `iso-builder serve`: boots machines from the network and gives each its own configuration.
//!
//! | Room | Content |
//! |---|---|
//! | [`server`] | connections, HTTP and TLS |
//! | [`machines`] | records of machines, their configurations, and the decision what each boots |
//! | [`boot`] | loaders, DHCP and boot scripts |
//! | [`content`] | the files of the medium |
//! | [`fleet`] | reports of machines, and the page that shows them |
//!
//! [`protocol`] has the URLs and kernel parameters that machines and the server agree on, [`journal`] the log of the server,
//! [`metrics`] what is counted for Prometheus, [`moment`] points in time. Only [`server`] and [`boot::dnsmasq`] deal with sockets and processes. Decisions are functions of
//! values.

pub mod boot;
pub mod content;
pub mod fleet;
pub mod journal;
pub mod machines;
pub mod metrics;
pub mod moment;
pub mod protocol;
pub mod server;
#[cfg(test)]
pub(crate) mod test_support;
