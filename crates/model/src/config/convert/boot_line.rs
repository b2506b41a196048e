//! Kernel command lines, and the scripts of boot loaders that have them, as a document.

use std::collections::BTreeMap;

use serde_json::Value;

use super::change::{Change, ChangeKind};
use super::conversion::{Conversion, ConvertedDocument};
use super::draft::{self, Draft, DraftEntry, is_plain};
use super::translate::as_is;
use crate::config::harvester::card;
use crate::config::shape;
use crate::config::sources::cmdline::{self, PREFIXES, Parameters, SWITCHES};
use crate::config::sources::document::COMMAND_LINE;
use crate::config::sources::print;
use crate::kernel_line::{Word, words};
use document::accepted_spellings::truth;
use document::diagnostic::{Diagnostic, Invalid, Source};
use document::shape::Shape;
use document::tree::{Key, NodeKind, TreeNode};

/// Words of the reference product's own boot by what they begin with, and what takes their place.
const BOOT: [(&str, &str); 15] = [
    (
        "root",
        "its live system; ours comes with the boot files of the medium, from a server by `iso-builder serve`",
    ),
    ("cdroot", "a switch of its live system; ours has none to take its place"),
    ("rd.cos.", "a switch of its live system; ours has none to take its place"),
    ("rd.live.", "a switch of its live system; ours has none to take its place"),
    ("cos.", "a switch of its live system; ours has none to take its place"),
    ("k3os.", "a switch of its first live system; ours has none to take its place"),
    (
        "rd.noverifyssl",
        "certificates are always checked; `install.ca_certificates` has those of authorities to trust",
    ),
    ("rd.neednet", "networks come up by themselves where the medium is fetched"),
    ("boot_cmd", "a command of its live system; nothing takes its place"),
    ("initrd", "of the boot loader; that of a medium of ours takes its place"),
    (
        "ip",
        "the address while it installs, which the installer gets by DHCP; the node's own is in `install.management_interface`",
    ),
    ("net.ifnames", "names of cards; here cards have predictable names, or are given by `hw_addr`"),
    ("console", "give it to the installing system as a kernel argument; the node's console is `install.tty`"),
    ("harvester.installer.disable", "a switch of its installer; leave it out"),
    ("harvester.serve_iso", "a switch of its installer; `iso-builder serve` serves a medium"),
];

/// The commands of boot loaders that are followed by the arguments of the kernel, all but `append` after the name of a file.
const KERNEL_COMMANDS: [&str; 6] = ["append", "kernel", "linux", "linuxefi", "linux16", "imgargs"];

/// The comment on any other word.
const OTHER: &str = "give it to the installing system as a kernel argument, and to the node by `os.additional_kernel_arguments`";

/// The comment on a document that is only a part of a configuration.
const PART: &str = "left out: `install.automatic`: this document is a part of a configuration, of which `install.config_url` gives \
                    the rest; put `automatic: true` there, or keep it among the kernel parameters";

/// Converts a kernel command line, or a script of iPXE, GRUB or PXELINUX that has one; `name` is what messages call it.
pub fn command_line(text: &str, name: &str) -> Result<ConvertedDocument, Invalid> {
    let (line, arguments) = arguments(text, name)?;
    let shape = shape::install_config();
    let Parameters { root, problems, hidden } = cmdline::parse(&arguments, shape);
    if !problems.is_empty() {
        return Err(Source::new(COMMAND_LINE, &arguments, hidden, &[]).diagnose(problems));
    }
    let Some(mut root) = root else {
        let message = "no parameter of the kernel command line is configuration: `harvester.` and a key";
        return Err(Invalid(vec![Diagnostic::of_file(name, "no-parameters", message)]));
    };
    expand(&mut root, shape);
    let is_part = part(&mut root);
    let NodeKind::Map(entries) = &root.kind else { return Err(Invalid(Vec::new())) };
    let mut conversion = Conversion::of(text);
    let mut entries: Vec<_> =
        entries.iter().map(|(key, node)| DraftEntry::new(line, &*key.text, at(as_is(node), line))).collect();
    if let Some(first) = entries.first_mut() {
        first.notes = notes(&words(&arguments));
        first.notes.extend(is_part.then(|| PART.to_owned()));
    }
    let message = "the parameters of the kernel are keys of a document";
    let change = Change { kind: ChangeKind::Changed, line, path: String::new(), message: message.to_owned() };
    conversion.take(draft::write(&entries, Vec::new()), vec![change]);
    let mut converted = conversion.finish(name).map_err(|Invalid(left)| {
        Invalid(left.into_iter().map(|diagnostic| in_script(diagnostic, text)).collect())
    })?;
    converted.text.push_str(&parameters(&converted.text, is_part, shape));
    Ok(converted)
}

/// The same at the line of the script that has the parameter, which a `\` may have joined to others.
fn in_script(diagnostic: Diagnostic, text: &str) -> Diagnostic {
    let names = |word: &Word| {
        let key = PREFIXES.iter().find_map(|prefix| word.key.strip_prefix(prefix));
        let key = key.map(|key| key.split('.').map(shape::snake).collect::<Vec<_>>().join("."));
        key.is_some_and(|key| {
            diagnostic
                .path
                .strip_prefix(&*key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    match text.lines().position(|line| words(line).iter().any(names)) {
        Some(index) => diagnostic.at_line(index + 1),
        None => diagnostic,
    }
}

/// True if a text is a script of iPXE, GRUB or PXELINUX or a kernel command line, with parameters of ours, and no document.
pub fn is_boot_line(text: &str) -> bool {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_ours =
        |word: &Word| word.value.is_some() && PREFIXES.iter().any(|prefix| word.key.starts_with(prefix));
    let starts_kernel = |(_, line): &(usize, String)| {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        KERNEL_COMMANDS.contains(&command.to_ascii_lowercase().as_str()) && words(rest).iter().any(is_ours)
    };
    let begins = lines().next().unwrap_or_default();
    text.starts_with("#!ipxe")
        || logical(text).iter().any(starts_kernel)
        || lines().count() == 1 && !begins.starts_with(['{', '[']) && words(begins).iter().any(is_ours)
}

/// The arguments of the kernel in a script, with their line; a text that is no script is a command line itself.
fn arguments(text: &str, name: &str) -> Result<(usize, String), Invalid> {
    let mut variables = BTreeMap::new();
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_script = text.starts_with("#!");
    for (number, line) in logical(text) {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let rest = rest.trim();
        let line = match command.to_ascii_lowercase().as_str() {
            "set" if is_script => {
                let (name, value) = rest.split_once([' ', '=']).unwrap_or((rest, ""));
                variables.insert(name.to_owned(), value.trim().to_owned());
                continue;
            }
            "append" => rest.to_owned(),
            other if KERNEL_COMMANDS.contains(&other) => behind_file(rest),
            _ => continue,
        };
        is_script = true;
        let line = expanded(&line, &variables);
        let is_ours = |word: &Word| PREFIXES.iter().any(|prefix| word.key.starts_with(prefix));
        if words(&line).iter().any(is_ours) && !found.iter().any(|(_, other)| *other == line) {
            found.push((number, line));
        }
    }
    match found.len() {
        0 if !is_script => {
            let is_word = |line: &&str| !line.trim_start().starts_with('#');
            Ok((1, text.lines().filter(is_word).collect::<Vec<_>>().join(" ")))
        }
        0 => {
            let message = "no line of the script gives the kernel parameters of Harvester";
            Err(Invalid(vec![Diagnostic::of_file(name, "no-parameters", message)]))
        }
        1 => Ok(found.swap_remove(0)),
        _ => {
            let lines: Vec<_> = found.iter().map(|(line, _)| line.to_string()).collect();
            let message = format!(
                "the script starts kernels with different parameters, in the lines {}; give one of these lines",
                lines.join(", ")
            );
            Err(Invalid(vec![Diagnostic::of_file(name, "several-command-lines", message)]))
        }
    }
}

/// Lines with those that a `\` at the end joins, each with its number.
fn logical(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let (line, more) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(line);
            }
            None => lines.push((index + 1, line.to_owned())),
        }
        goes_on = more;
    }
    lines
}

/// The words behind the file name, which may have options before it.
fn behind_file(rest: &str) -> String {
    let mut words = rest.split_whitespace().peekable();
    while let Some(option) = words.next_if(|word| word.starts_with('-')) {
        if matches!(option, "-n" | "--name" | "-t" | "--timeout") {
            words.next();
        }
    }
    words.next();
    let Some(first) = words.next() else { return String::new() };
    // From the first argument on the blanks are as they were: they may be in quotes.
    rest.find(&format!(" {first}")).map_or(String::new(), |at| rest[at + 1..].to_owned())
}

/// The line with the values of the script's own variables; others, which the loader knows, stay.
fn expanded(line: &str, variables: &BTreeMap<String, String>) -> String {
    let mut line = line.to_owned();
    // A variable may be of others.
    for _ in 0..4 {
        for (name, value) in variables {
            line = line.replace(&format!("${{{name}}}"), value);
        }
    }
    line
}

/// The notes about words that are not configuration.
fn notes(words: &[Word]) -> Vec<String> {
    let mut notes =
        vec!["changed: from a kernel command line; each parameter is a key of this document".to_owned()];
    for word in words {
        let is_switch = SWITCHES.contains(&word.key.as_str());
        if !is_switch && PREFIXES.iter().any(|prefix| word.key.starts_with(prefix)) {
            continue;
        }
        let own = BOOT.iter().find(|(begin, _)| match begin.ends_with('.') {
            true => word.key.starts_with(begin),
            false => word.key == *begin,
        });
        let what = own.map_or(OTHER, |(_, what)| what);
        let note = format!("left out: `{}`: {what}", word.key);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Takes the word to install without questions out of a document that names another with the rest of it, and by itself
/// would be an install with much missing; whether it was one.
fn part(root: &mut TreeNode) -> bool {
    let NodeKind::Map(groups) = &mut root.kind else { return false };
    let install = groups.iter_mut().find(|(key, _)| key.text == "install");
    let Some((_, TreeNode { kind: NodeKind::Map(keys), .. })) = install else { return false };
    if !keys.iter().any(|(key, _)| key.text == "config_url") {
        return false;
    }
    let asks = |(key, node): &(Key, TreeNode)| {
        key.text == "automatic"
            && matches!(&node.kind, NodeKind::Scalar { text, .. } if truth(text) == Some(true))
    };
    let before = keys.len();
    keys.retain(|entry| !asks(entry));
    keys.len() < before
}

/// The document as kernel parameters of ours, as a comment; nothing where it cannot be said so.
fn parameters(text: &str, is_part: bool, shape: &Shape) -> String {
    let Ok(mut value) = serde_saphyr::from_str::<Value>(text) else { return String::new() };
    if is_part {
        value["install"]["automatic"] = Value::Bool(true);
    }
    let Ok(words) = print::parameters(&value, shape) else { return String::new() };
    let lines: String = words.iter().map(|word| format!("#   {word}\n")).collect();
    format!("# The same as kernel parameters of a medium of ours, each a word of the line:\n{lines}")
}

/// Puts groups in the place of texts that stand for network cards.
fn expand(node: &mut TreeNode, shape: &Shape) {
    if let NodeKind::Scalar { text, .. } = &node.kind
        && card::is_card(shape)
        && !text.is_empty()
    {
        *node = card::group(node, text);
    }
    match &mut node.kind {
        NodeKind::Scalar { text, plain } => *plain = *plain || is_plain(text),
        NodeKind::List(items) => {
            let item = shape.item().unwrap_or(&Shape::Truth);
            items.iter_mut().for_each(|node| expand(node, item));
        }
        NodeKind::Map(entries) => {
            for (key, node) in entries {
                expand(node, cmdline::below_or_item(shape, &key.text).unwrap_or(&Shape::Truth));
            }
        }
    }
}

fn at(draft: Draft, line: usize) -> Draft {
    let moved = |entries: Vec<DraftEntry>| {
        let entry =
            |entry: DraftEntry| DraftEntry { line, value: entry.value.map(|value| at(value, line)), ..entry };
        entries.into_iter().map(entry).collect()
    };
    match draft {
        Draft::List(entries) => Draft::List(moved(entries)),
        Draft::Map(entries) => Draft::Map(moved(entries)),
        other => other,
    }
}
