//! The error for state that cannot be read.

use std::path::Path;

use base::failure::{Class, Failure};

pub(super) fn unreadable(path: &Path, why: anyhow::Error) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("reading the state of the machines in {}", path.display()))
        .because(why)
        .hint("Use the iso-builder that wrote it; without this file, installed machines would install again.")
        .into()
}
