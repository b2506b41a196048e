use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

const SHORT: Duration = Duration::from_secs(1);

fn put(root: &Path, class: &str, name: &str, mode: u32, script: &str) {
    let path = below(root, OWN_CHECKS).join(class).join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for directory in [below(root, OWN_CHECKS), below(root, OWN_CHECKS).join(class)] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn told(root: &Path) -> Vec<String> {
    run_all(root, Uid::effective(), SHORT).iter().map(ToString::to_string).collect()
}

#[test]
fn each_program_says_by_its_exit_whether_the_node_is_good_and_by_its_last_line_why_not() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "wanted", "quiet", 0o700, "exit 3");
    put(root.path(), "required", "b-good", 0o755, "echo fine");
    put(
        root.path(),
        "required",
        "a-bad",
        0o700,
        "echo first; echo 'the array \x1b[1mis slow' >&2; echo; exit 1",
    );
    assert_eq!(
        told(root.path()),
        [
            "own-required a-bad: failing: the array [1mis slow",
            "own-required b-good: healthy",
            "own-wanted quiet: failing: it ended with exit status: 3"
        ]
    );
}

#[test]
fn a_node_without_own_checks_has_none() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(told(root.path()), ["own-required: not applicable", "own-wanted: not applicable"]);
}

#[test]
fn a_program_that_hangs_is_ended_with_what_it_has_started() {
    let root = tempfile::tempdir().unwrap();
    let mark = root.path().join("survivor");
    let script = format!("(sleep 3; : > {}) & echo waiting; sleep 60", mark.display());
    put(root.path(), "required", "hangs", 0o700, &script);
    put(root.path(), "required", "leaves", 0o700, "sleep 60 & exit 0");
    let begun = Instant::now();
    let told = told(root.path());
    assert!(begun.elapsed() < Duration::from_millis(2500), "{:?}", begun.elapsed());
    assert_eq!(told[0], "own-required hangs: failing: it did not end within 1 s; it said: waiting");
    assert_eq!(told[1], "own-required leaves: healthy");
    thread::sleep(Duration::from_millis(2500));
    assert!(!mark.exists(), "what it had started went on");
}

#[test]
fn a_program_that_others_could_have_written_is_told_and_not_run() {
    let root = tempfile::tempdir().unwrap();
    let mark = root.path().join("ran");
    let script = format!(": > {}", mark.display());
    put(root.path(), "required", "open", 0o777, &script);
    put(root.path(), "required", "plain", 0o600, &script);
    symlink("/bin/true", below(root.path(), OWN_CHECKS).join("required/link")).unwrap();
    nix::unistd::mkfifo(&below(root.path(), OWN_CHECKS).join("required/pipe"), nix::sys::stat::Mode::S_IRWXU)
        .unwrap();
    put(root.path(), "required", ".hidden", 0o700, &script);
    let expected = [
        ("link", "cannot be opened"),
        ("open", "can be written by others"),
        ("pipe", "is not a file"),
        ("plain", "is not executable"),
    ];
    let lines = told(root.path());
    for (line, (name, why)) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(&format!("own-required {name}: cannot say: it is not run: it {why}")),
            "{line}"
        );
    }
    let another = Uid::from_raw(Uid::effective().as_raw() + 1);
    let results = run_all(root.path(), another, SHORT);
    assert!(results[1].finding.reason().unwrap().contains("does not belong to root"), "{results:?}");
    let directory = below(root.path(), OWN_CHECKS).join("required");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    put(root.path(), "wanted", "x", 0o700, "exit 0");
    fs::set_permissions(below(root.path(), OWN_CHECKS).join("required"), fs::Permissions::from_mode(0o777))
        .unwrap();
    assert!(told(root.path())[0].contains("the directory required can be written by others"));
    assert!(!mark.exists());
}

#[test]
fn a_program_gets_nothing_of_this_ones_environment() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "required", "env", 0o700, "env | cut -d= -f1 | sort | tr '\\n' ' '; pwd; exit 1");
    let told = told(root.path());
    assert_eq!(told[0], "own-required env: failing: HOME LC_ALL PATH PWD /");
}
