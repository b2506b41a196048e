//! The fleet: the progress of all machines, from the reports of their installers, and the page that shows it.
//!
//! | Module | Content |
//! |---|---|
//! | [`install_run`], [`install_runs`] | the reports of one machine's run; those that are stored |
//! | [`stage`] | the stage of a deployment, from steps and states |
//! | [`rows`] | the machines as they are shown, kept from one request to the next |
//! | [`view`], [`document`] | the fleet as it is shown, and its JSON |
//! | [`entries`] | what the journal says of a machine |
//! | [`wait`] | what machines that wait for a cluster are told of the one that creates it |
//! | [`history`] | what has changed since a version of the list |
//! | [`filter`], [`query`] | which machines a request asks for, and how they are shown |
//! | [`listing`] | one page of them, in order and in sections |
//! | [`page`], [`card`], [`machine_page`], [`elements`] | the view as HTML, by templates that escape what they show |
//! | [`bulk`], [`bulk_page`] | actions on several machines, and their pages |
//! | [`access`], [`entry`] | access control, and the URL with the token |
//! | [`answers`], [`openapi`] | the other JSON of the API; its description |
//! | [`audit`] | the audit log as JSON |
//! | [`routes`] | the replies to requests; [`crate::server::fleet_http`] is the same in HTTP |
//!
//! Reports are kept with the records of machines ([`crate::machines::store`]), so that a server that was restarted, and any
//! other one of the fleet, shows the same. A server's own are the changes that it has seen ([`history`]).

pub mod access;
pub mod answers;
pub mod audit;
pub mod bulk;
pub mod bulk_page;
pub mod card;
pub mod document;
pub mod elements;
pub mod entries;
pub mod entry;
pub mod filter;
pub mod history;
pub mod install_run;
pub mod install_runs;
pub mod listing;
pub mod machine_page;
pub mod openapi;
pub mod page;
pub mod query;
pub mod routes;
pub mod rows;
pub mod stage;
pub mod view;
pub mod wait;
