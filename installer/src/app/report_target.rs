//! The fleet server that an install reports to.

use machine::inventory::read_identity;
use std::path::Path;

use anyhow::Result;

use super::gather;
use base::progress::Progress;
use model::config::text::HttpUrl;
use reporting::fleet::{self, Reporter, ReporterSetup};

/// The server, if there is one, and the tokens on the kernel command line, which must not appear in any text.
#[derive(Default)]
pub(crate) struct ReportTarget {
    pub(crate) url: Option<HttpUrl>,
    pub(crate) tokens: Vec<String>,
}

impl ReportTarget {
    /// The server that `--report` or else the kernel parameter names.
    pub(crate) fn of(given: Option<&str>) -> Result<Self> {
        let line = gather::kernel_command_line()?;
        let url = fleet::destination(given, &line)?;
        let mut tokens = fleet::tokens(&line);
        tokens.extend(url.iter().filter_map(|url| Some(fleet::token(url)?.to_owned())));
        Ok(Self { url, tokens })
    }

    /// Reports one run to the server from now on.
    pub(crate) fn reporter(&self, progress: &Progress) -> Option<Reporter> {
        let (machine, policy) = (read_identity(Path::new("/")), fleet::policy());
        let begin = |url| Reporter::begin(ReporterSetup { url, machine, policy, progress: progress.clone() });
        self.url.clone().map(begin)
    }
}
