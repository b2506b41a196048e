//! The machines that ask for a boot: how they are identified, which configuration each gets, whether it installs or boots from
//! its disk, and the database that remembers it. Without sockets and URLs; the router calls [`registry`] for machines and the
//! fleet for operators.
//!
//! | Module | Content |
//! |---|---|
//! | [`id`], [`identity_keys`] | the number of a machine here; the identifiers by which it is found |
//! | [`machine`] | the record of a machine and the states of its deployment |
//! | [`configurations`] | the configurations of a directory or of a cluster file, checked as an install would |
//! | [`choose`] | the record and the configuration for a request to boot |
//! | [`registry`] | every change of a record, as one transaction |
//! | [`store`] | the database |
//! | [`token`] | the tokens of boot scripts |
//! | [`access_token`] | tokens of people and programs, with their roles |
//! | [`audit`] | who has decided what |
//! | [`stranger_rate`] | how many requests of unknown machines are recorded |

pub mod access_token;
pub mod audit;
pub mod choose;
pub mod configurations;
pub mod id;
pub mod identity_keys;
pub mod machine;
pub mod registry;
pub mod store;
pub mod stranger_rate;
pub mod token;
