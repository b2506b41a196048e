//! `installer verify`.

use std::io;

use anyhow::Result;

use super::{Context, consoles, media};
use crate::failure::{Class, Failure, class_of};
use crate::medium::{PayloadSource, Place, Verified, read_release, source};
use crate::progress::Progress;
use crate::release::{Payload, Release};

/// Hash every payload of a medium and name each one that is damaged.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The medium: a directory or a URL; by default the one that this system runs from.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        consoles::with(self.consoles, &context.progress, || {
            let source = source(self.medium.as_deref())?;
            let result = read_release(source.as_ref(), media::expected()?)
                .and_then(|release| verify(source.as_ref(), &release, &context.progress));
            match &result {
                Ok(()) => context.progress.finish("The medium is good", 0),
                Err(error) => {
                    context.progress.finish("The medium is not good", class_of(error).exit_code());
                }
            }
            result
        })
    }
}

/// Hashes everything that the medium is to hold. Damage does not end the search; a server that fails does.
fn verify(source: &dyn PayloadSource, release: &Release, progress: &Progress) -> Result<()> {
    let here = |payload: &&Payload| {
        // A net-install medium leaves some payloads to a server; on a server all are to be there.
        !payload.is_remote_on(release.medium) || source.place(payload) == Some(Place::Here)
    };
    let payloads: Vec<_> = release.payloads.iter().filter(here).collect();
    let total = payloads.iter().map(|payload| payload.size).sum();
    let mut step = progress.step("verify", format!("Checking {}", source.describe()), Some(total));
    let mut damaged = Vec::new();
    for payload in &payloads {
        let checked = source.open(payload).and_then(|reader| {
            let mut reader = Verified::new(step.reader(reader), payload, source.describe());
            Ok(io::copy(&mut reader, &mut io::sink())?)
        });
        match checked {
            Ok(_) => {}
            Err(error) if matches!(class_of(&error), Class::Verification | Class::DiskIo) => {
                damaged.push(format!("{} ({})", payload.path, error.root_cause()));
            }
            Err(error) => return Err(error),
        }
    }
    if damaged.is_empty() {
        step.done();
        return Ok(());
    }
    drop(step);
    let what = format!("{} of {} payloads are damaged or missing", damaged.len(), payloads.len());
    Err(Failure::new(Class::Verification, what)
        .because(anyhow::anyhow!("{}", damaged.join("\n           ")))
        .hint("Write the medium again from a checked file, or use another one.")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::render;
    use crate::medium::LocalMedium;
    use crate::plan::tests::{contents, release};

    #[test]
    fn every_damaged_payload_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for (payload, bytes) in contents() {
            let path = directory.path().join(&payload.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let medium = LocalMedium::new(directory.path());
        verify(&medium, &release(), &Progress::silent()).unwrap();
        std::fs::write(directory.path().join("live/initrd"), b"short").unwrap();
        std::fs::remove_file(directory.path().join("images/metadata/default.db")).unwrap();
        let error = verify(&medium, &release(), &Progress::silent()).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification);
        assert!(text.contains("2 of 15 payloads"), "{text}");
        assert!(text.contains("live/initrd") && text.contains("images/metadata/default.db"), "{text}");
    }
}
