//! The sources of a configuration that the machine has to be asked for: a server and a labelled volume.

pub mod url;
pub mod volume;
