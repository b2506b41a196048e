//! A client that writes to the API once a second, at the virtual address, whatever happens to the nodes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use nqrust_tests::native_cluster::TestCluster;
use nqrust_tests::writer::Writer;

use super::figures::Figures;

/// The longest time without a good write that is right while one server is away: another one gets the virtual address, a leader is
/// elected, or an API server starts again.
const WITHOUT_WRITE_MAX: Duration = Duration::from_secs(30);

/// Writes to the cluster once a second; what fails is told in `log`.
pub(super) fn begin(cluster: &TestCluster, log: PathBuf) -> Writer {
    let kubectl = cluster.kubectl();
    Writer::start(0, log, move |number| kubectl.write(&format!("write-{number}")))
}

/// Ends the client and judges its writes.
pub(super) fn end(writer: Writer, figures: &mut Figures<'_>) -> Result<()> {
    let written = writer.finish()?;
    figures.say(&format!(
        "{} writes; at most {:.1} s without a good one",
        written.good,
        written.longest.as_secs_f64()
    ))?;
    ensure!(written.good > 10, "writes never went on: {written:?}");
    ensure!(written.longest <= WITHOUT_WRITE_MAX, "somebody waits long for a write: {written:?}");
    Ok(())
}
