//! Gauges of one moment in the text format of Prometheus (version 0.0.4), and the file in which the textfile collector of node_exporter
//! finds them. A program that serves a port registers its metrics itself; this is for programs that run and end.
//!
//! | Module | What it does |
//! |---|---|
//! | `snapshot` | the gauges and their text |
//! | `series` | reads that text again |
//! | `file` | the file |

mod file;
mod series;
mod snapshot;

pub use file::MetricsFile;
pub use series::{Series, series_of};
pub use snapshot::{Gauge, GaugeSnapshot};
