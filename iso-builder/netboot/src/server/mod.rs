//! The HTTP server: connections, TLS, requests and their responses. It decides nothing about machines.
//!
//! | Module | Content |
//! |---|---|
//! | [`run`] | the server from start to end; what the command `serve` calls |
//! | [`connections`] | accepts connections; [`sendfile`] answers requests for files over plain HTTP |
//! | [`http`], [`fleet_http`], [`response`] | requests and responses as hyper has them |
//! | [`router`] | the reply to each request; without sockets |
//! | [`health`] | whether the server is alive and ready |
//! | [`metrics_http`], [`scrapers`], [`metered`] | metrics for Prometheus; requests that are counted for them |
//! | [`provenance`] | whether a request may change something, by where it comes from |
//! | [`tls`], [`authority`] | HTTPS, and the certificate authority of a server that was given no certificate |
//! | [`state_directory`] | checks that nobody else can change the directory of `--state` |

pub mod authority;
pub mod connections;
pub mod fleet_http;
pub mod health;
pub mod http;
pub mod metered;
pub mod metrics_http;
pub mod provenance;
pub mod response;
pub mod router;
pub mod run;
pub mod scrapers;
pub mod sendfile;
pub mod state_directory;
pub mod tls;
