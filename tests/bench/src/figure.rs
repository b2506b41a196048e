//! One measured value beside its baseline.

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    baseline_name: String,
    baseline_value: f64,
    /// Value divided by baseline.
    ratio: f64,
    #[serde(skip)]
    limit: Option<RatioLimit>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RatioLimit {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    /// `value` beside `baseline`, both in `unit`.
    pub(crate) fn new(name: &str, value: f64, unit: &'static str, baseline: (&str, f64)) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit,
            baseline_name: baseline.0.to_owned(),
            baseline_value: baseline.1,
            ratio: value / baseline.1,
            limit: None,
        }
    }

    pub(crate) fn limit(mut self, limit: RatioLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The same figure without a limit: small inputs measure nothing that a limit is about.
    pub(crate) fn without_limit(mut self) -> Self {
        self.limit = None;
        self
    }

    pub(crate) fn holds(&self) -> bool {
        match self.limit {
            Some(RatioLimit::AtMost(most)) => self.ratio <= most,
            Some(RatioLimit::AtLeast(least)) => self.ratio >= least,
            None => true,
        }
    }

    fn cells(&self) -> [String; 7] {
        let limit = match self.limit {
            Some(RatioLimit::AtMost(most)) => format!("at most {most}"),
            Some(RatioLimit::AtLeast(least)) => format!("at least {least}"),
            None => String::new(),
        };
        let mark = if self.holds() { "" } else { "  MISSED" };
        [
            self.name.clone(),
            format!("{:.2}", self.value),
            self.unit.to_owned(),
            self.baseline_name.clone(),
            format!("{:.2}", self.baseline_value),
            format!("{:.2}", self.ratio),
            format!("{limit}{mark}"),
        ]
    }
}

/// The value in the middle; of an even number of values the upper one, of none not a number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn table(figures: &[Figure]) -> String {
    let head = ["figure", "value", "unit", "baseline", "its value", "ratio", "limit of the ratio"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(figures.iter().map(Figure::cells));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_outside_its_limit_is_marked_in_the_table() {
        let slow = Figure::new("copy", 30.0, "s", ("cp", 10.0)).limit(RatioLimit::AtMost(1.5));
        let quick = Figure::new("write", 8.0, "MB/s", ("dd", 10.0)).limit(RatioLimit::AtLeast(0.7));
        assert!(!slow.holds() && quick.holds());
        let text = table(&[slow, quick]);
        assert_eq!(text.matches("MISSED").count(), 1, "{text}");
    }

    #[test]
    fn a_figure_has_the_fields_of_the_contract() {
        let json = serde_json::to_value(Figure::new("copy", 3.0, "s", ("cp", 2.0))).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["baseline_name", "baseline_value", "name", "ratio", "unit", "value"]);
    }
}
