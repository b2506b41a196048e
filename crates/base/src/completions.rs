//! Shell completion scripts for the visible commands and options of a program.

use clap::Command;
use clap_complete::Shell;

/// The completion script of `command` for `shell`, without hidden subcommands.
#[must_use]
pub fn script(command: &Command, shell: Shell) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(command), &name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // The generator replaces a hyphen in the program's name in two ways, one where it finds the subcommand and one where it lists
        // its options (clap_complete 4.6), so nothing would be completed after a subcommand.
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        _ => script,
    }
}

/// The commands that the help of `command` shows, with those above them: `network show`. Those that only hold others are not among them.
#[must_use]
pub fn commands(command: &Command) -> Vec<String> {
    let mut all = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = below.get_name();
        let further = commands(below);
        if further.is_empty() {
            all.push(name.to_owned());
        }
        all.extend(further.into_iter().map(|rest| format!("{name} {rest}")));
    }
    all
}

/// The command without its hidden subcommands, at every level.
fn shown(command: &Command) -> Command {
    let visible = command.get_subcommands().filter(|below| !below.is_hide_set()).map(shown);
    let mut copy = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().cloned())
        .subcommands(visible)
        .disable_help_subcommand(command.is_disable_help_subcommand_set());
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use std::process::Command as Process;
    use testing::programs;

    fn program() -> Command {
        let hidden = Command::new("secret").hide(true).arg(Arg::new("never").long("never"));
        let below = Command::new("set-up").arg(Arg::new("depth").long("depth"));
        let build = Command::new("build").about("Builds").arg(Arg::new("output").long("output"));
        Command::new("two-words").version("1").subcommands([
            build,
            hidden,
            Command::new("net-work").subcommand(below),
        ])
    }

    /// The completions that a shell offers for `line`, whose last word is not finished.
    fn offered(shell: Shell, line: &str) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("_two-words");
        std::fs::write(&path, script(&program(), shell)).unwrap();
        let (path, name) = (path.display(), shell.to_string());
        let words: Vec<_> = line.split(' ').collect();
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let ask = match shell {
            Shell::Bash => format!(
                "source {path}; COMP_WORDS=({line}); COMP_CWORD={}; _two__words two-words '{last}' '{before}'; \
                 printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                words.len() - 1
            ),
            Shell::Fish => format!("source {path}; complete --do-complete '{line}'"),
            // Completion needs a terminal there; that the script is one, and knows the words, is what can be asked.
            _ => format!("zsh -n {path} && cat {path}"),
        };
        if programs::find(&name).is_none() {
            programs::leave_out(&format!("completion in {name}"), "the shell is missing");
            return None;
        }
        let said = Process::new(&name).args(["-c", &ask]).output().unwrap();
        assert!(said.status.success(), "{name}: {}", String::from_utf8_lossy(&said.stderr));
        Some(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    #[test]
    fn visible_commands_have_their_whole_names() {
        assert_eq!(commands(&program()), ["build", "net-work set-up"]);
    }

    #[test]
    fn shells_complete_options_of_every_subcommand_and_nothing_hidden() {
        for shell in [Shell::Bash, Shell::Fish] {
            let Some(first) = offered(shell, "two-words build --") else { continue };
            assert!(first.contains("--output"), "{shell}: {first:?}");
            let deep = offered(shell, "two-words net-work set-up --").unwrap();
            assert!(deep.contains("--depth"), "{shell}: {deep:?}");
            let all = offered(shell, "two-words ").unwrap();
            assert!(all.contains("build") && !all.contains("secret"), "{shell}: {all:?}");
        }
        let Some(script) = offered(Shell::Zsh, "two-words build") else { return };
        assert!(script.contains("--depth") && !script.contains("secret"), "{script}");
    }
}
