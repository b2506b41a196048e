//! Virtual machines that do against running servers what real ones do: they ask for a boot script, load kernel and initrd,
//! take their configuration, fetch the OS image and blobs, report the install, start from their disk and report until their
//! node is ready. Each has its own cards, UUID, serial number and configuration, and checks what it gets.
//!
//! The tests of replicas and the benchmark run it; [`main`](../src/main.rs) is the program for people. It knows the
//! protocol only as machines do: from the scripts of the server, and from the types of reports in [`model::fleet`].

pub mod boot_server;
pub mod fleet_check;
pub mod line;
pub mod measurements;
pub mod prepare;
pub mod process;
pub mod report;
pub mod run;
pub mod servers;
pub mod virtual_machine;

mod boot_script;
mod http_client;
mod install;
mod install_reports;
mod patience;
