//! Reading the text of a snapshot again.

/// One series of a gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// The series of the gauge `name` in the text of a [`GaugeSnapshot`](super::GaugeSnapshot). Lines in another form are passed over.
#[must_use]
pub fn series_of(text: &str, name: &str) -> Vec<Series> {
    text.lines().filter_map(|line| series(line.strip_prefix(name)?)).collect()
}

/// A line behind its name: `{label="value"} 1.5`, or ` 1.5` without labels.
fn series(line: &str) -> Option<Series> {
    let (labels, value) = match line.strip_prefix('{') {
        Some(line) => labels(line)?,
        None => (Vec::new(), line),
    };
    Some(Series { labels, value: value.strip_prefix(' ')?.parse().ok()? })
}

/// The labels up to the closing brace, and what is behind it.
fn labels(mut line: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = line.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (label, rest) = line.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.push((label.to_owned(), value));
        line = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// A value up to its closing quotation mark, and what is behind that. `\\`, `\"` and `\n` are the only escapes of the format.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Gauge, GaugeSnapshot};

    const GAUGE: Gauge = Gauge { name: "nqrust_time_seconds", help: "A time" };

    #[test]
    fn lines_of_other_gauges_and_of_other_forms_are_passed_over() {
        let text = "# HELP nqrust_time_seconds A time.\nnqrust_time_seconds 3\nnqrust_time_seconds{} 4\n\
                    nqrust_time_seconds_more 5\nnqrust_time_seconds{a=\"b} 6\nnqrust_time_seconds{a=\"b\"}\n\
                    nqrust_time_seconds{a=\"b\",c=\"}\"} 7e3\nnqrust_time_seconds{a} 8\nother 9\n";
        let found = series_of(text, GAUGE.name);
        let values: Vec<_> = found.iter().map(|series| series.value).collect();
        assert_eq!(values, [3.0, 4.0, 7000.0]);
        assert_eq!(found[2].labels[1], ("c".to_owned(), "}".to_owned()));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(one in "\\PC*|[\"\\\\\n{},= ]*", other in any::<String>(), value in any::<f64>()) {
            let mut snapshot = GaugeSnapshot::default();
            snapshot.set(GAUGE, &[("one", &one), ("other", &other)], value);
            let text = snapshot.text();
            // A line has no other end than a line feed.
            prop_assert_eq!(text.matches('\n').count(), 3);
            let read = series_of(&text, GAUGE.name);
            prop_assert_eq!(read.len(), 1, "{}", text);
            let labels = vec![("one".to_owned(), one), ("other".to_owned(), other)];
            prop_assert_eq!(&read[0].labels, &labels);
            prop_assert!(read[0].value == value || read[0].value.is_nan() && value.is_nan(), "{}", text);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            let _ = series_of(&text, "");
        }
    }
}
