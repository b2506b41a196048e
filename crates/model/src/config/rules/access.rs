//! Who can log in.

use document::finding::Finding;

use super::shared::{is_unattended, repeated};
use crate::config::password::{self, PasswordKind};
use crate::config::{Hostname, InstallConfig, Secret};

/// Fewer characters than this are found by trying.
const PASSWORD: usize = 8;
/// Users that the image has, or that the document sets in another place.
const TAKEN: [&str; 22] = [
    "root",
    "rancher",
    "daemon",
    "bin",
    "sys",
    "sync",
    "games",
    "man",
    "lp",
    "mail",
    "news",
    "uucp",
    "proxy",
    "www-data",
    "backup",
    "list",
    "irc",
    "nobody",
    "_apt",
    "sshd",
    "messagebus",
    "etcd",
];

/// The longest value of a label in Kubernetes.
const LABEL: usize = 63;

/// The name of a node becomes the value of its label `kubernetes.io/hostname`, which is shorter than the kernel's limit.
pub(super) fn host_name_is_a_label(config: &InstallConfig) -> Vec<Finding> {
    let long = config.os.hostname.as_ref().filter(|name| name.len() > LABEL);
    let finding = |name: &Hostname| {
        let message = format!(
            "the host name has {} characters; a node of Kubernetes has at most {LABEL}, because the name is also the value \
             of a label",
            name.len()
        );
        Finding::new("os.hostname", "long-hostname", message)
    };
    long.map(finding).into_iter().collect()
}

/// The name of a node leads to that node: the name of every machine for itself, and what programs take for an address, do
/// not.
pub(super) fn host_name_is_a_name(config: &InstallConfig) -> Vec<Finding> {
    let Some(name) = config.os.hostname.as_deref() else { return Vec::new() };
    let finding = |message: &str| Finding::new("os.hostname", "unusable-hostname", message);
    if name == "localhost" || name.starts_with("localhost.") {
        return vec![finding("every machine knows itself by this name; give the node one of its own")];
    }
    if !name.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Vec::new();
    }
    let finding = finding("programs take a name of digits for an address; begin it with a letter");
    let better = Some(format!("node-{name}")).filter(|better| !name.contains('.') && better.len() <= LABEL);
    vec![match better {
        Some(better) => finding.suggest(better),
        None => finding,
    }]
}

/// A node that installs itself and has no login would have to be installed again.
pub(super) fn a_login_is_possible(config: &InstallConfig) -> Vec<Finding> {
    let os = &config.os;
    let rancher = os.password.is_some() || os.password_file.is_some() || !os.ssh_authorized_keys.is_empty();
    let further = os.users.iter().any(|user| user.password.is_some() || !user.ssh_authorized_keys.is_empty());
    if !is_unattended(config) || rancher || further {
        return Vec::new();
    }
    let message = "an automatic installation needs `os.password` or `os.ssh_authorized_keys`, \
                   or nobody could log in";
    vec![Finding::new("os", "no-login", message)]
}

/// The password comes from one place.
pub(super) fn one_password(config: &InstallConfig) -> Vec<Finding> {
    let both = config.os.password.is_some() && config.os.password_file.is_some();
    let message = "`os.password` is given too; keep one of them";
    both.then(|| Finding::new("os.password_file", "conflicting-keys", message)).into_iter().collect()
}

/// Passwords are hashes, or at least not short.
pub(super) fn passwords_are_strong(config: &InstallConfig) -> Vec<Finding> {
    let users = config.os.users.iter().enumerate();
    let users = users.map(|(index, user)| (format!("os.users[{index}].password"), &user.password));
    let all = [("os.password".to_owned(), &config.os.password)].into_iter().chain(users);
    all.filter_map(|(path, password)| weakness(path, password.as_ref()?)).collect()
}

fn weakness(path: String, password: &Secret) -> Option<Finding> {
    let text = password.expose();
    if password::kind(text) != PasswordKind::Clear {
        return None;
    }
    Some(if text.chars().count() < PASSWORD {
        let message = format!("the password has fewer than {PASSWORD} characters");
        Finding::warning(path, "weak-password", message)
    } else {
        let message = "everyone who can read this document knows the password; a hash made by \
                       `mkpasswd --method=yescrypt` does as well";
        Finding::warning(path, "clear-text-password", message)
    })
}

/// Each user is a further one, and can log in.
pub(super) fn users_are_further_ones(config: &InstallConfig) -> Vec<Finding> {
    let users = &config.os.users;
    let path = |index: usize| format!("os.users[{index}].name");
    let mut findings = Vec::new();
    for (index, user) in users.iter().enumerate() {
        if &*user.name == "rancher" {
            let message =
                "the user rancher is always there; `os.password` and `os.ssh_authorized_keys` are its own";
            findings.push(Finding::new(path(index), "reserved-user", message));
        } else if TAKEN.contains(&&*user.name) {
            findings.push(Finding::new(path(index), "reserved-user", "the system has a user of this name"));
        }
        if user.password.is_none() && user.ssh_authorized_keys.is_empty() {
            let message = "this user has neither a password nor a key and cannot log in";
            findings.push(Finding::warning(format!("os.users[{index}]"), "user-without-login", message));
        }
    }
    let names: Vec<_> = users.iter().map(|user| &user.name).collect();
    let again = "a user of this name is listed already";
    findings.extend(repeated(&names).map(|(later, _)| Finding::new(path(later), "duplicate-name", again)));
    findings
}

/// Where passwords are turned off, at least one user needs a key.
pub(super) fn keys_before_passwords_go(config: &InstallConfig) -> Vec<Finding> {
    let os = &config.os;
    let keys = !os.ssh_authorized_keys.is_empty()
        || os.users.iter().any(|user| !user.ssh_authorized_keys.is_empty());
    if !os.sshd.disable_password_auth || keys {
        return Vec::new();
    }
    let message = "with only keys to log in, and no key in the document, nobody can log in over SSH";
    vec![Finding::new("os.sshd.disable_password_auth", "no-ssh-key", message)]
}
