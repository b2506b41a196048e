//! Gauges of one moment and their text.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// What a program says of a gauge. Names follow the conventions of Prometheus (<https://prometheus.io/docs/practices/naming/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// With the unit at its end.
    pub name: &'static str,
    /// A sentence without its full stop.
    pub help: &'static str,
}

/// Constants of gauges whose names have the same beginning: `INFO = "info", "What runs";`.
#[macro_export]
macro_rules! gauges {
    ($prefix:literal: $($constant:ident = $name:literal, $help:literal;)*) => {
        $(const $constant: $crate::Gauge = $crate::Gauge { name: concat!($prefix, $name), help: $help };)*
    };
}

/// Whole numbers below this are exact (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

type Labels = Vec<(&'static str, String)>;

/// Gauges of one moment, in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GaugeSnapshot(Vec<(Gauge, BTreeMap<Labels, f64>)>);

impl GaugeSnapshot {
    /// Sets a series of a gauge. What it was set to before is forgotten.
    pub fn set(&mut self, gauge: Gauge, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let index = self.0.iter().position(|(known, _)| known.name == gauge.name).unwrap_or_else(|| {
            self.0.push((gauge, BTreeMap::new()));
            self.0.len() - 1
        });
        self.0[index].1.insert(labels, value);
    }

    /// The same for what is true or not: 1 or 0.
    pub fn set_if(&mut self, gauge: Gauge, labels: &[(&'static str, &str)], holds: bool) {
        self.set(gauge, labels, f64::from(u8::from(holds)));
    }

    /// The text format of Prometheus, version 0.0.4. The same snapshot always has the same text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = prometheus_text::encode(&mut text, &registry);
        text
    }
}

impl Collector for GaugeSnapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (Gauge { name, help }, series) in &self.0 {
            let help = format!("{help}.");
            let mut gauge = encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                let series = gauge.encode_family(labels)?;
                // Whole numbers without a fraction, for people who read the file.
                match value.fract() == 0.0 && value.abs() < EXACT {
                    true => ConstGauge::new(*value as i64).encode(series)?,
                    false => ConstGauge::new(*value).encode(series)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Gauge = Gauge { name: "nqrust_ready", help: "Whether it is ready" };
    const SIZE: Gauge = Gauge { name: "nqrust_size_bytes", help: "Size of a\\b" };

    #[test]
    fn each_gauge_is_told_once_with_its_series_in_order() {
        let mut snapshot = GaugeSnapshot::default();
        snapshot.set(SIZE, &[("file", "b")], 1_764_460_799.0);
        snapshot.set_if(READY, &[], false);
        snapshot.set(SIZE, &[("file", "a \"b\"\\\nc")], 0.25);
        snapshot.set_if(READY, &[], true);
        assert_eq!(
            snapshot.text(),
            "# HELP nqrust_size_bytes Size of a\\\\b.\n\
             # TYPE nqrust_size_bytes gauge\n\
             nqrust_size_bytes{file=\"a \\\"b\\\"\\\\\\nc\"} 0.25\n\
             nqrust_size_bytes{file=\"b\"} 1764460799\n\
             # HELP nqrust_ready Whether it is ready.\n\
             # TYPE nqrust_ready gauge\n\
             nqrust_ready 1\n"
        );
        assert_eq!(GaugeSnapshot::default().text(), "");
    }
}
