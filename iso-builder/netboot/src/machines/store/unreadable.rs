//! The error for state that cannot be read.

use std::fmt::Display;

use base::failure::{Class, Failure};

pub(super) fn unreadable(place: impl Display, why: anyhow::Error) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("reading the state of the machines in {place}"))
        .because(why)
        .hint(
            "Use the iso-builder that wrote it; without this state, installed machines would install again.",
        )
        .into()
}
