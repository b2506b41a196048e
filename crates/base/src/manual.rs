//! Man pages of a program and its commands, of what its help shows.

use std::path::Path;

use anyhow::Result;
use clap::Command;

use crate::failure::{Class, Classify};
use crate::files::{make_directory, write_atomically};

/// The pages of `command` by their file names, `PROGRAM.1` and `PROGRAM-COMMAND.1` for each command. Hidden ones have none.
pub fn pages(command: &Command) -> Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.clone().disable_help_subcommand(true);
    // Commands get their whole names and the options that are for all of them.
    command.build();
    let program = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
    let mut pages = Vec::new();
    add(&command, &program, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, program: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let page = clap_mangen::Man::new(command.clone()).source(program).manual("NQRust Hypervisor");
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), text));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, program, pages)?;
    }
    Ok(())
}

/// Writes the pages of `command` into `directory`.
pub fn write(command: &Command, directory: &Path) -> Result<()> {
    let what = || format!("writing man pages into {}", directory.display());
    make_directory(directory, 0o755).class(Class::DiskIo, what)?;
    for (name, text) in pages(command)? {
        write_atomically(&directory.join(name), &text, 0o644).class(Class::DiskIo, what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use std::process::Command as Process;
    use testing::programs;

    fn program() -> Command {
        let below =
            Command::new("set-up").about("Sets up").arg(Arg::new("depth").long("depth").help("How deep."));
        Command::new("two-words").version("1.2").about("Does two things").subcommands([
            Command::new("build").about("Builds").after_help("Examples:\n  two-words build x"),
            Command::new("secret").hide(true),
            Command::new("net-work").about("Nets").subcommand(below),
        ])
    }

    #[test]
    fn every_visible_command_has_a_page_with_its_whole_name() {
        let directory = tempfile::tempdir().unwrap();
        write(&program(), directory.path()).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let expected =
            ["two-words-build.1", "two-words-net-work-set-up.1", "two-words-net-work.1", "two-words.1"];
        assert_eq!(names, expected);
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        let deep = read("two-words-net-work-set-up.1");
        assert!(deep.contains("\"two-words 1.2\"") && deep.contains("\\-\\-depth"), "{deep}");
        assert!(!read("two-words.1").contains("secret"));
        if programs::find("groff").is_none() {
            programs::leave_out("man pages in groff", "the program is missing");
            return;
        }
        for name in names {
            let mut groff = Process::new("groff");
            let said = groff
                .args(["-man", "-Tutf8", "-ww", "-z"])
                .arg(directory.path().join(&name))
                .output()
                .unwrap();
            assert!(said.status.success() && said.stderr.is_empty(), "{name:?}: {said:?}");
        }
    }
}
