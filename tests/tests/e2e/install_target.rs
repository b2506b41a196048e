//! `make install`: the programs where it puts them, what shells complete with its scripts, and nothing left by `make uninstall`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use walkdir::WalkDir;

/// Runs a target of the Makefile for files below `root`.
fn make(target: &str, root: &Path) -> Result<()> {
    let mut make = Command::new("make");
    make.args(["--no-print-directory", target, "PREFIX=/usr"]).arg(format!("DESTDIR={}", root.display()));
    let done = make.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).output()?;
    ensure!(done.status.success(), "make {target}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The output of a program that is installed below `root`.
fn said(program: &str, words: &[&str], root: &Path) -> Result<String> {
    let path = format!("{}:{}", root.join("usr/bin").display(), std::env::var("PATH")?);
    let mut command = Command::new(program);
    let done =
        command.args(words).env("PATH", path).env("HOME", root).output().context(program.to_owned())?;
    ensure!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

fn installed(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in WalkDir::new(root.join("usr")) {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

/// The completions of bash, zsh and fish for the beginning of a word behind `program`: zsh only says whose completion it has, as it completes
/// on terminals alone.
fn completed(program: &str, begun: &str, root: &Path) -> Result<[String; 3]> {
    let share = root.join("usr/share");
    let function = format!("_{}", program.replace('-', "__"));
    let bash = format!(
        ". {}; COMP_WORDS=({program} {begun}); COMP_CWORD=1; {function} {program} {begun} {program}; echo $COMPREPLY",
        share.join("bash-completion/completions").join(program).display()
    );
    let zsh = format!(
        "fpath=({} $fpath); autoload -U compinit; compinit -D -u; autoload +X _{program}; print $_comps[{program}]",
        share.join("zsh/site-functions").display()
    );
    let fish = format!(
        "source {}; complete --do-complete '{program} {begun}'",
        share.join("fish/vendor_completions.d").join(format!("{program}.fish")).display()
    );
    Ok([
        said("bash", &["--norc", "-c", &bash], root)?,
        said("zsh", &["-f", "-c", &zsh], root)?,
        said("fish", &["--no-config", "-c", &fish], root)?,
    ])
}

#[test]
fn installed_programs_run_complete_words_and_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    make("install", root).unwrap();
    for page in ["iso-builder.1", "iso-builder-customize.1", "installer.1", "installer-network-show.1"] {
        assert!(root.join("usr/share/man/man1").join(page).is_file(), "{page}");
    }
    for (program, begun, whole) in
        [("iso-builder", "custo", "customize"), ("installer", "prefl", "preflight")]
    {
        assert!(said(program, &["--version"], root).unwrap().starts_with(program));
        let [bash, zsh, fish] = completed(program, begun, root).unwrap();
        assert_eq!((bash.as_str(), zsh), (whole, format!("_{program}")));
        assert!(fish.starts_with(whole), "{fish}");
    }
    assert!(installed(root).unwrap().len() > 30);
    make("uninstall", root).unwrap();
    assert_eq!(installed(root).unwrap(), Vec::<PathBuf>::new());
}
