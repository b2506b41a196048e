//! The fleet: what its machines are doing, out of what their installers report, and the page that shows it.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`install_run`], [`install_runs`] | what one machine has told of its run, and all of them |
//! | [`stage`] | where a machine is on its way, out of steps and states |
//! | [`view`] | the fleet as it is shown, and its JSON |
//! | [`page`], [`card`], [`machine_page`], [`elements`] | the view as HTML, by templates that escape what they show |
//! | [`access`], [`entry`] | who may see it, and how they come in |
//! | [`routes`] | which request gets which of these; [`super::fleet_http`] is the same in HTTP |
//!
//! What machines tell is kept in memory: a server that starts again knows from [`super::machine`] what each machine
//! is, and hears the rest as it is told.

pub mod access;
pub mod card;
pub mod elements;
pub mod entry;
pub mod install_run;
pub mod install_runs;
pub mod machine_page;
pub mod page;
pub mod routes;
pub mod stage;
pub mod view;
