//! Metrics of builds.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::build::{BuildOutcome, GivenTime, build_with};
use crate::entries::{archive, directory, file};

fn build(directory: &Path, base: &str, metrics: &Path) -> BuildOutcome {
    let base = json!({ "archive": { "path": directory.join(base) } });
    let options = [OsStr::new("--metrics"), metrics.as_os_str()];
    build_with(directory, &base, GivenTime::Environment(1_700_000_000), &options)
}

/// The value of the only line that begins with the name of a metric and has this label.
fn value(text: &str, metric: &str, label: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")) && line.contains(label));
    let [line] = lines.collect::<Vec<_>>()[..] else { panic!("{metric} {label}: {text}") };
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_build_that_fails_tells_its_class_and_the_steps_that_it_finished() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("image.prom");
    let tree = [directory("./"), directory("./etc/"), directory("./usr/"), file("./usr/file", "content")];
    fs::write(place.path().join("tree.tar"), archive(&tree)).unwrap();
    // The time of a success long ago.
    let before = "nqrust_image_build_last_success_time_seconds{definition=\"image\",variant=\"\",architecture=\"amd64\"} 7\n\
                  nqrust_image_build_last_success_time_seconds{definition=\"other\",variant=\"\",architecture=\"amd64\"} 8\n";
    fs::write(&path, before).unwrap();
    for source in ["made", "cache"] {
        build(place.path(), "tree.tar", &path).base();
        let text = fs::read_to_string(&path).unwrap();
        let of = |metric: &str, label: &str| value(&text, &format!("nqrust_image_build_{metric}"), label);
        assert_eq!((of("success", ""), of("exit_code", "")), (0.0, 2.0));
        assert_eq!(of("info", "version=\"1\""), 1.0);
        let base = of("step_duration_seconds", "step=\"base\"");
        assert!(0.0 <= base && base <= of("duration_seconds", ""), "{text}");
        assert_eq!(of("last_success_time_seconds", ""), 7.0, "that of another definition is not kept");
        let steps = |of_source: &str| of("steps", &format!("source=\"{of_source}\""));
        let count = text.matches("step_duration_seconds{").count();
        assert_eq!((steps(source), steps("made") + steps("cache")), (count as f64, count as f64), "{text}");
        assert_eq!(of("written_bytes", "") > 0.0, source == "made", "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        assert!(!text.contains(place.path().to_str().unwrap()), "{text}");
    }
    // What does not come so far is a failure, too.
    let absent = build(place.path(), "absent.tar", &path);
    assert!(absent.code == 2 && absent.told.contains("absent.tar"), "{}: {}", absent.code, absent.told);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(value(&text, "nqrust_image_build_exit_code", ""), 2.0);
    assert_eq!(value(&text, "nqrust_image_build_last_success_time_seconds", ""), 7.0);
}
