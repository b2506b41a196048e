//! The checksums and the report of a build, which name the media that signatures change.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, Result};
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure};
use base::files::{read_at_most, write_atomically};
use base::progress::{Progress, Step};
use medium::build_output::{BUILD_AGAIN, BuildOutput, CHECKSUMS, REPORT};
use medium::reader::MediumReader;
use serde_json::{Value, json};

use super::signable_medium::replaceable;
use crate::media::assemble::checksums;
use crate::media::customize::change::AreaContents;
use crate::media::customize::{CustomizationLocation, copy};

const MAX_REPORT: u64 = 32 << 20;
const MODE: u32 = 0o644;

/// Length in bytes and digest of an output.
pub(crate) type ListedFile = (u64, Digest);

/// The lists of an output directory.
#[derive(Debug)]
pub(super) struct ListedOutputs {
    output: BuildOutput,
    /// None where the report was removed.
    report: Option<Value>,
}

impl ListedOutputs {
    /// Reads the lists, and makes sure that they can be replaced.
    pub(super) fn open(output: BuildOutput) -> Result<Self> {
        for name in [CHECKSUMS, REPORT] {
            replaceable(&output.file(name))?;
        }
        let path = output.file(REPORT);
        let report = match path.exists() {
            false => None,
            true => {
                let report: Option<Value> = serde_json::from_slice(&read_at_most(&path, MAX_REPORT)?).ok();
                let report = report.filter(|report| report.get("outputs").is_some_and(Value::is_array));
                Some(report.ok_or_else(|| {
                    let what = format!("{} is not the report of a build", path.display());
                    Failure::new(Class::Verification, what).hint(BUILD_AGAIN)
                })?)
            }
        };
        Ok(Self { output, report })
    }

    pub(super) fn output(&self) -> &BuildOutput {
        &self.output
    }

    /// Lists these files, by name, as they are now. The checksums come last.
    pub(super) fn list(&self, files: &BTreeMap<String, ListedFile>) -> Result<()> {
        let writing =
            |name: &str| format!("writing {}; sign the media again", self.output.file(name).display());
        if let Some(report) = &self.report {
            let mut listed = report.clone();
            if let Some(outputs) = listed.get_mut("outputs").and_then(Value::as_array_mut) {
                files.iter().for_each(|(name, file)| report_output(outputs, name, *file));
            }
            if listed != *report {
                let text = format!("{}\n", serde_json::to_string_pretty(&listed)?);
                write_atomically(&self.output.file(REPORT), text.as_bytes(), MODE)
                    .class(Class::DiskIo, || writing(REPORT))?;
            }
        }
        let mut sums = self.output.sums().clone();
        sums.extend(files.iter().map(|(name, (_, digest))| (name.clone(), *digest)));
        if sums != *self.output.sums() {
            write_atomically(&self.output.file(CHECKSUMS), checksums::render(&sums).as_bytes(), MODE)
                .class(Class::DiskIo, || writing(CHECKSUMS))?;
        }
        Ok(())
    }
}

/// Lists an output in the report, which has them sorted by their names.
fn report_output(outputs: &mut Vec<Value>, name: &str, (size, sha256): ListedFile) {
    let listed = json!({ "name": name, "size": size, "sha256": sha256 });
    let name_of = |output: &Value| output.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    match outputs.iter_mut().find(|output| name_of(output) == name) {
        Some(output) => *output = listed,
        None => {
            let place = outputs.partition_point(|output| name_of(output).as_str() < name);
            outputs.insert(place, listed);
        }
    }
}

/// Length and digest of an ISO as it was built: without its customization, which the list of a build does not know.
pub(crate) fn as_built(medium: &MediumReader, progress: &Progress) -> Result<ListedFile> {
    let place = CustomizationLocation::find(medium)?;
    let name = place.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let step = progress.step(&format!("checksum-{name}"), format!("Hashing {name}"), Some(place.end));
    let mut hashed = HashedCopy { hasher: Hasher::default(), step };
    copy::to_stream(medium, &place, &AreaContents::as_built()?, &mut hashed)
        .with_context(|| format!("hashing {name}"))?;
    hashed.step.done();
    Ok((place.end, hashed.hasher.finish()))
}

struct HashedCopy {
    hasher: Hasher,
    step: Step,
}

impl io::Write for HashedCopy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        self.step.advance(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
