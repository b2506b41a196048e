//! The file [`FILE`] beside the node document, with which the node goes on reporting after the install.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Reporter;
use base::files;
use model::config::Secret;

/// The name of the file on the configuration partition; its mode is 0600.
pub const FILE: &str = "fleet.json";

const VERSION: u32 = 1;

/// The content of the file. The URL is a secret. With the run, the server adds what the node reports to what the install
/// has reported.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    v: u32,
    pub url: String,
    pub run: Uuid,
    pub authorities: Vec<String>,
    /// Whether the server knows that the node is ready in its cluster. Then it hears of updates only.
    #[serde(default)]
    pub joined: bool,
}

/// The URL is a secret.
impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Reporter {
    /// The content of [`FILE`] for the node that this run installs.
    pub fn kept(&self) -> Result<Secret> {
        let known = self.run.known();
        let kept = Handover {
            v: VERSION,
            url: self.run.url.as_str().to_owned(),
            run: known.hello.run,
            authorities: known.authorities.clone(),
            joined: false,
        };
        kept.to_text()
    }
}

impl Handover {
    fn to_text(&self) -> Result<Secret> {
        Ok(Secret::new(serde_json::to_string_pretty(self)? + "\n"))
    }

    pub fn conclude(mut self, file: &Path) -> Result<()> {
        self.joined = true;
        files::write_atomically(file, self.to_text()?.expose().as_bytes(), 0o600)
    }

    /// # Errors
    /// The file cannot be read, or is not of this format and version.
    pub fn read(file: &Path) -> Result<Self> {
        let handover: Self = serde_json::from_str(&files::read_text(file)?)
            .with_context(|| format!("reading {}", file.display()))?;
        anyhow::ensure!(
            handover.v == VERSION,
            "{} has version {}, not {VERSION}",
            file.display(),
            handover.v
        );
        Ok(handover)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReporterSetup, policy};
    use super::*;
    use base::progress::Progress;
    use model::machine::Identity;

    #[test]
    fn the_node_goes_on_with_the_run_of_its_install() {
        let url = "http://127.0.0.1:9/v1/report/MARK-token".parse().unwrap();
        let (machine, progress) = (Identity::default(), Progress::silent());
        let reporter = Reporter::begin(ReporterSetup { url, machine, policy: policy(), progress });
        let handover: Handover = serde_json::from_str(reporter.kept().unwrap().expose()).unwrap();
        assert_eq!(handover.run, reporter.run.known().hello.run);
    }
}
