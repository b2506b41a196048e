//! The failure of reading what an earlier server has kept.

use std::path::Path;

use base::failure::{Class, Failure};

pub(super) fn unreadable(path: &Path, why: anyhow::Error) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("reading the state of the machines in {}", path.display()))
        .because(why)
        .hint("Use the iso-builder that wrote it. Without this file, machines that are installed install again.")
        .into()
}
