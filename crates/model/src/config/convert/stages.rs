//! Stages of the reference product's operating system (the files in `/oem` beside its configuration) as keys of `os`.

use std::collections::BTreeMap;

use super::change::{Change, ChangeKind};
use super::draft::{self, Draft, DraftEntry, is_plain};
use super::translate::as_is;
use crate::config::password::{self, PasswordKind};
use document::tree::{Key, NodeKind, TreeNode};

/// The users whose keys and password are those of the node's own user here.
const ADMINISTRATORS: [&str; 2] = ["rancher", "root"];

/// Where files of stages are the operating system's or the cluster's own work.
const OWN: [&str; 6] = [
    "/etc/rancher/",
    "/etc/sysconfig/network/",
    "/etc/NetworkManager/",
    "/var/lib/rancher/",
    "/oem/",
    "/usr/local/",
];

/// The keys of `os` that say the same as the stages of a document, and what was done; none where it has no stages.
pub(super) fn entries(document: &[(Key, TreeNode)]) -> Option<(Vec<DraftEntry>, Vec<Change>)> {
    let (key, stages) = document.iter().find(|(key, _)| key.text == "stages")?;
    let NodeKind::Map(stages) = &stages.kind else { return None };
    let mut gathered = StageSettings::default();
    for (name, steps) in stages {
        let NodeKind::List(steps) = &steps.kind else { continue };
        for (index, step) in steps.iter().enumerate() {
            let NodeKind::Map(step) = &step.kind else { continue };
            gathered.step(step, &format!("stages.{}[{index}]", name.text));
        }
    }
    for (other, node) in document.iter().filter(|(other, _)| other.text != "stages" && other.text != "name") {
        gathered.lose(other, node, &other.text, "only `stages` say anything here");
    }
    let message = "`stages` have no effect here; what they do is said by keys of `os`";
    gathered.note(ChangeKind::Changed, key.span.line, "stages", message);
    Some(gathered.document(key.span.line))
}

#[derive(Default)]
struct StageSettings {
    /// Single values of `os`, by their keys.
    texts: BTreeMap<&'static str, (usize, String)>,
    /// Lists of texts of `os`.
    lists: BTreeMap<&'static str, Vec<(usize, String)>>,
    /// Dictionaries of `os`, each with the values in the order of the document.
    maps: BTreeMap<&'static str, Vec<(usize, String, String)>>,
    files: Vec<DraftEntry>,
    /// Keys without a successor, which are listed as comments at the end.
    lost: Vec<DraftEntry>,
    changes: Vec<Change>,
}

impl StageSettings {
    fn note(&mut self, kind: ChangeKind, line: usize, path: &str, message: impl Into<String>) {
        self.changes.push(Change { kind, line, path: path.to_owned(), message: message.into() });
    }

    fn lose(&mut self, key: &Key, node: &TreeNode, path: &str, why: &str) {
        let message = format!("`{}`: {why}", key.text);
        self.note(ChangeKind::Lost, key.span.line, path, message.clone());
        let shown = DraftEntry::new(1, &*key.text, as_is(node));
        let shown = draft::write(&[shown], Vec::new()).text;
        let shown = shown.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
        let notes = vec![format!("left out, and nothing here does the same: {message}"), shown];
        self.lost.push(DraftEntry::left_out(key.span.line, notes));
    }

    fn step(&mut self, step: &[(Key, TreeNode)], path: &str) {
        for (key, node) in step {
            let below = format!("{path}.{}", key.text);
            let line = key.span.line;
            match (key.text.as_str(), &node.kind) {
                ("name", _) => {}
                ("hostname", NodeKind::Scalar { text, .. }) => {
                    self.texts.insert("hostname", (line, text.clone()));
                }
                ("modules", NodeKind::List(_)) => self.list("modules", texts(node)),
                ("sysctl", NodeKind::Map(values)) => self.map("sysctls", values),
                ("environment", NodeKind::Map(values)) => self.map("environment", values),
                ("environment_file", NodeKind::Scalar { text, .. }) if text == "/etc/environment" => {}
                ("dns", NodeKind::Map(dns)) => {
                    for (key, node) in dns {
                        match key.text.as_str() {
                            "nameservers" => self.list("dns_nameservers", texts(node)),
                            _ if is_empty(node) => {}
                            _ => self.lose(key, node, &below, "the node asks name servers as DHCP says"),
                        }
                    }
                }
                ("timesyncd", NodeKind::Map(values)) => {
                    for (key, node) in values {
                        match (key.text.as_str(), &node.kind) {
                            ("NTP", NodeKind::Scalar { text, .. }) => {
                                let line = node.span.line;
                                let servers = text.split_whitespace().map(|server| (line, server.to_owned()));
                                self.list("ntp_servers", servers.collect());
                            }
                            _ => self.lose(key, node, &below, "only time servers can be given"),
                        }
                    }
                }
                ("authorized_keys" | "ssh_keys", NodeKind::Map(users)) => {
                    for (key, node) in users {
                        match ADMINISTRATORS.contains(&key.text.as_str()) {
                            true => self.list("ssh_authorized_keys", texts(node)),
                            false => self.lose(key, node, &below, "further users are in `os.users`"),
                        }
                    }
                }
                ("users", NodeKind::Map(users)) => self.users(users, &below),
                ("files", NodeKind::List(files)) => files.iter().for_each(|file| self.file(file, &below)),
                ("directories", _) => {
                    self.lose(key, node, &below, "directories come with the files of `os.write_files`");
                }
                ("commands", _) => {
                    let why = "no commands run at boot; files come from `os.write_files`, services from `overlay` of an \
                               image definition";
                    self.lose(key, node, &below, why);
                }
                _ if is_empty(node) => {}
                _ => self.lose(key, node, &below, "stages have no effect here"),
            }
        }
    }

    fn list(&mut self, name: &'static str, texts: Vec<(usize, String)>) {
        let list = self.lists.entry(name).or_default();
        for (line, text) in texts {
            if !list.iter().any(|(_, known)| *known == text) {
                list.push((line, text));
            }
        }
    }

    /// Of a value that is given again the last counts, as the stages run one after the other.
    fn map(&mut self, name: &'static str, values: &[(Key, TreeNode)]) {
        let map = self.maps.entry(name).or_default();
        for (key, node) in values {
            let NodeKind::Scalar { text, .. } = &node.kind else { continue };
            map.retain(|(_, known, _)| *known != key.text);
            map.push((key.span.line, key.text.clone(), text.clone()));
        }
    }

    fn users(&mut self, users: &[(Key, TreeNode)], path: &str) {
        for (user, node) in users {
            let NodeKind::Map(entries) = &node.kind else { continue };
            if !ADMINISTRATORS.contains(&user.text.as_str()) {
                self.note(ChangeKind::Lost, user.span.line, path, further(&user.text));
                let notes = vec![format!("left out: {}", further(&user.text))];
                self.lost.push(DraftEntry::left_out(user.span.line, notes));
                continue;
            }
            for (key, node) in entries {
                if let ("passwd" | "passwordhash" | "password_hash", NodeKind::Scalar { text, .. }) =
                    (key.text.to_ascii_lowercase().as_str(), &node.kind)
                    && password::kind(text) != PasswordKind::Lock
                {
                    self.texts.insert("password", (key.span.line, text.clone()));
                }
            }
        }
    }

    fn file(&mut self, file: &TreeNode, path: &str) {
        let NodeKind::Map(entries) = &file.kind else { return };
        let value = |name: &str| {
            entries.iter().find(|(key, _)| key.text == name).and_then(|(_, node)| match &node.kind {
                NodeKind::Scalar { text, .. } if !text.is_empty() => Some(text.clone()),
                _ => None,
            })
        };
        let Some(place) = value("path") else { return };
        let line = file.span.line;
        if OWN.iter().any(|own| place.starts_with(own)) {
            let message = format!("`{place}` is a file that the system or the cluster makes itself");
            self.note(ChangeKind::Dropped, line, path, message.clone());
            self.lost.push(DraftEntry::left_out(line, vec![format!("dropped: {message}")]));
            return;
        }
        let scalar = |text: String| Draft::Scalar { plain: is_plain(&text), text };
        let mut keys = vec![DraftEntry::new(line, "path", scalar(place))];
        let owner = value("ownerstring").or_else(|| {
            let owner = value("owner").filter(|owner| owner != "0")?;
            Some(value("group").map_or(owner.clone(), |group| format!("{owner}:{group}")))
        });
        let given = [
            ("owner", owner),
            ("permissions", value("permissions").map(|text| mode(&text))),
            ("encoding", value("encoding")),
            ("content", Some(value("content").unwrap_or_default())),
        ];
        for (name, text) in given {
            keys.extend(text.map(|text| DraftEntry::new(line, name, scalar(text))));
        }
        self.files.push(DraftEntry::new(line, "", Draft::Map(keys)));
    }

    fn document(self, line: usize) -> (Vec<DraftEntry>, Vec<Change>) {
        let scalar = |text: String| Draft::Scalar { plain: is_plain(&text), text };
        let mut os = Vec::new();
        for (name, (line, text)) in self.texts {
            os.push(DraftEntry::new(line, name, scalar(text)));
        }
        for (name, texts) in self.lists.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            let line = texts[0].0;
            let items = texts.into_iter().map(|(line, text)| DraftEntry::new(line, "", scalar(text)));
            os.push(DraftEntry::new(line, name, Draft::List(items.collect())));
        }
        for (name, values) in self.maps.into_iter().filter(|(_, values)| !values.is_empty()) {
            let line = values[0].0;
            let values = values.into_iter().map(|(line, key, text)| DraftEntry::new(line, key, scalar(text)));
            os.push(DraftEntry::new(line, name, Draft::Map(values.collect())));
        }
        if !self.files.is_empty() {
            os.push(DraftEntry::new(self.files[0].line, "write_files", Draft::List(self.files)));
        }
        let mut entries = Vec::new();
        if !os.is_empty() {
            let mut entry = DraftEntry::new(line, "os", Draft::Map(os));
            entry.notes.push("changed: the stages of the system are said by keys of `os`".to_owned());
            entries.push(entry);
        }
        entries.extend(self.lost);
        (entries, self.changes)
    }
}

fn further(user: &str) -> String {
    format!("`{user}`: further users are in `os.users`, with their keys and passwords")
}

/// Permissions as they are written here, in octal; in stages a number without a leading zero is decimal.
fn mode(text: &str) -> String {
    match text.parse::<u32>() {
        Ok(number) if !text.starts_with('0') => format!("{number:04o}"),
        _ => text.replace("0o", "0"),
    }
}

fn texts(node: &TreeNode) -> Vec<(usize, String)> {
    let NodeKind::List(items) = &node.kind else { return Vec::new() };
    let text = |item: &TreeNode| match &item.kind {
        NodeKind::Scalar { text, .. } if !text.is_empty() => Some((item.span.line, text.clone())),
        _ => None,
    };
    items.iter().filter_map(text).collect()
}

fn is_empty(node: &TreeNode) -> bool {
    match &node.kind {
        NodeKind::Scalar { text, .. } => node.is_nothing() || text.is_empty(),
        NodeKind::List(items) => items.is_empty(),
        NodeKind::Map(entries) => entries.is_empty(),
    }
}
