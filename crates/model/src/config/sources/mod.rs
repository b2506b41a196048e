//! Where the configuration of an install comes from, and how the sources become one configuration.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`document`] | one source's document, of YAML or of kernel parameters |
//! | [`words`] | how the kernel splits its command line |
//! | [`cmdline`] | kernel parameters as a tree, [`print`](mod@print) the way back |
//! | [`merge`] | values that know their source, and what a stronger source does to a weaker one |
//! | [`combine`] | documents to one checked configuration, and where each value of it came from |
//! | [`state`] | which source is asked next; the asking is behind a trait |
//! | [`volume`], [`url`] | two of the sources |
//!
//! The others have effects in the command line programs: the medium is opened there anyway.

pub mod cmdline;
pub mod combine;
pub mod document;
pub mod merge;
pub mod print;
pub mod state;

#[cfg(test)]
mod tests;

use std::fmt;

pub use combine::{CombinedConfig, ConfigEntry, check_partial, combine, combine_alone};
pub use document::Document;
pub use state::{Gathering, SourceReader, SourceRequest, gather};

/// A source, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The image definition's defaults for every machine.
    Defaults,
    Embedded,
    /// A volume with the label `NQRUST-CONFIG` or `cidata`.
    Volume,
    /// `install.config_url`.
    Url,
    /// A file that the command line of this program names; it stands in place of the three above.
    File,
    KernelParameters,
    Console,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Defaults => "image defaults",
            Self::Embedded => "embedded configuration",
            Self::Volume => "configuration volume",
            Self::Url => "install.config_url",
            Self::File => "file",
            Self::KernelParameters => "kernel parameters",
            Self::Console => "console",
        })
    }
}
