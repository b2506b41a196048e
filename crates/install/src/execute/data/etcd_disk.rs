//! What the disk of etcd can do: measured on the new file system of the persistent partition, before anything else is there.

use std::path::Path;

use anyhow::Result;

use crate::execute::effects::RunEffects;
use crate::execute::payload::store::directory;
use crate::plan::Plan;
use base::failure::{Class, Failure};
use machine::write_latency::{GOOD, RECORD_ON_PARTITION};

/// Measures the partition mounted at `root`, reports what it found, and records it there for the status of the node.
///
/// # Errors
/// [`Class::Hardware`] if the disk is slower than the document allows. A disk that cannot be measured is a warning: what is wrong with
/// it, the next steps tell.
pub(crate) fn judge(plan: &Plan, effects: &RunEffects<'_>, root: &Path) -> Result<()> {
    let Some(measured) = effects.host.write_latency(root) else { return Ok(()) };
    let note = |text: String| effects.progress.note("filesystems", text);
    let latency = match measured {
        Ok(latency) => latency,
        Err(error) => {
            note(format!("warning: the disk of etcd was not measured: {error:#}"));
            return Ok(());
        }
    };
    let disk = &plan.disk.description;
    match plan.document.install.etcd_write_latency_limit {
        Some(limit) if latency.exceeds(limit) => {
            let what = format!(
                "the disk of etcd is too slow: {latency} on {disk}, and install.etcd_write_latency_limit is {limit} ms"
            );
            return Err(Failure::new(Class::Hardware, what)
                .hint("Name a faster disk in install.device, or set a higher limit.")
                .into());
        }
        _ if !latency.is_good() => {
            let good = GOOD.as_millis();
            note(format!("warning: the disk is slow for etcd, which needs {good} ms: {latency} on {disk}"));
        }
        _ => note(format!("The disk of etcd: {latency}")),
    }
    for path in ["lib", "lib/nqrust"] {
        directory(&root.join(path), 0o755)?;
    }
    latency.record(&root.join(RECORD_ON_PARTITION))
}
