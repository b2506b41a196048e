//! A report of a failed install, for `install.debug`, and a support bundle of a node: one archive with what helps to
//! find the cause of a failure.
//!
//! Everything in it goes through [`Secrets::hide`]. The report itself says what could not be collected: an incomplete
//! report is better than none.

mod collect;
mod send;

use std::path::{Path, PathBuf};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;

use base::command::Runner;
use base::failure::{Class, Classify};
use base::files::write_atomically;
use machine::inventory::Inventory;
use model::config::InstallConfig;
use model::config::redact::{Secrets, without_secrets};
use model::fleet;

pub use send::{UploadMethod, send};

/// In memory: the disks may be what is broken.
pub const DIRECTORY: &str = "/run/nqrust";

/// How much of the kernel's messages a log has, in bytes.
const KERNEL: usize = 64 << 10;

#[allow(missing_debug_implementations)]
pub struct FailedRun<'a> {
    pub config: &'a InstallConfig,
    /// Disks and network cards, if they have been looked at.
    pub inventory: Option<&'a Inventory>,
    /// The plan as text, if there is one.
    pub plan: Option<&'a str>,
    pub events: &'a str,
    pub error: &'a str,
    /// Removed from all texts.
    pub secrets: &'a Secrets,
}

/// A packed report or support bundle: a `tar` archive, compressed with gzip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The file name, with the time in it.
    pub name: String,
    /// Without secrets.
    pub bytes: Vec<u8>,
}

pub fn report(known: &FailedRun<'_>, runner: &dyn Runner) -> Result<Archive> {
    packed("report", &files(known, runner))
}

/// Writes the report below `directory` with mode 0600. Returns its path.
pub fn write(known: &FailedRun<'_>, runner: &dyn Runner, directory: &Path) -> Result<PathBuf> {
    report(known, runner)?.put(directory)
}

/// Writes a support bundle below `directory` with mode 0600: the `files` and the logs of this boot, each as `hide`
/// leaves it. Returns its path.
pub fn bundle(
    mut files: Vec<(&'static str, String)>,
    hide: &dyn Fn(&str) -> String,
    runner: &dyn Runner,
    directory: &Path,
) -> Result<PathBuf> {
    files.extend(collect::logs(runner));
    let files: Vec<_> = files.into_iter().map(|(name, text)| (name, hide(&text))).collect();
    packed("support", &files)?.put(directory)
}

fn packed(kind: &str, files: &[(&str, String)]) -> Result<Archive> {
    let now = jiff::Timestamp::now();
    let name = format!("{kind}-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let bytes = pack(&name, files, seconds).class(Class::Unexpected, || "packing".into())?;
    Ok(Archive { name: format!("{name}.tar.gz"), bytes })
}

impl Archive {
    fn put(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(&self.name);
        write_atomically(&path, &self.bytes, 0o600)?;
        Ok(path)
    }
}

/// The log that the server of the fleet gets: messages of the kernel, the plan, what happened as `lines`.
/// Secrets are still in it.
#[must_use]
pub fn log(plan: Option<&str>, lines: &str, runner: &dyn Runner) -> String {
    let plan = plan.unwrap_or("The install ended before there was a plan.\n");
    format!("{}\n\n{plan}\n{lines}", fleet::end(&collect::kernel(runner), KERNEL).trim_end())
}

fn files(known: &FailedRun<'_>, runner: &dyn Runner) -> Vec<(&'static str, String)> {
    let inventory = match known.inventory {
        Some(inventory) => base::encode::json_text(inventory),
        None => "The install ended before the machine was looked at.\n".into(),
    };
    let plan = known.plan.unwrap_or("The install ended before there was a plan.\n");
    let mut files = vec![
        ("error.txt", known.error.to_owned()),
        ("configuration.yaml", without_secrets(known.config)),
        ("inventory.json", inventory),
        ("plan.txt", plan.to_owned()),
        ("events.jsonl", known.events.to_owned()),
    ];
    files.extend(collect::logs(runner));
    files.into_iter().map(|(name, text)| (name, known.secrets.hide(&text))).collect()
}

fn pack(name: &str, files: &[(&str, String)], seconds: u64) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (file, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(seconds);
        archive.append_data(&mut header, format!("{name}/{file}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use testing::documents::MARKED;
    use testing::runner::ScriptedRunner;

    /// A machine that has written every secret into its logs, and has no `journalctl`.
    fn careless() -> ScriptedRunner {
        ScriptedRunner::failing("MARK-auth: no such program")
            .answer("dmesg", b"[0.1] kernel says MARK-password and \xff MARK-agent\n")
    }

    #[test]
    fn a_report_has_everything_that_is_known_and_no_secret() {
        let config = model::config::parse(MARKED, "f").unwrap();
        let mut secrets = Secrets::default();
        secrets.add(&config);
        let known = FailedRun {
            config: &config,
            inventory: Some(&Inventory::default()),
            plan: Some("plan with MARK-token \"quoted\""),
            events: "{\"message\": \"MARK-token \\\"quoted\\\"\"}\n",
            error: "error: MARK-header",
            secrets: &secrets,
        };
        let directory = tempfile::tempdir().unwrap();
        let path = write(&known, &careless(), directory.path()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        let bytes = std::fs::read(&path).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert!(!text.contains("MARK"), "{name}: {text}");
            found.insert(name, text);
        }
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "configuration.yaml",
                "error.txt",
                "events.jsonl",
                "inventory.json",
                "journal.txt",
                "kernel.txt",
                "plan.txt"
            ]
        );
        assert_eq!(found["kernel.txt"], "[0.1] kernel says [hidden] and \u{fffd} [hidden]\n");
        assert!(found["journal.txt"].contains("could not be collected"), "{}", found["journal.txt"]);
        assert!(found["configuration.yaml"].contains("hostname: node-1"));
    }
}
