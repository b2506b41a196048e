//! The sources of a configuration outside this machine's memory: a server and a labelled volume.

pub mod url;
pub mod volume;
