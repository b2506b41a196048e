//! The accounts of a node: edits of the image's own `/etc/{passwd,group,shadow,gshadow}` that keep every other entry as it is.

use std::ops::RangeInclusive;
use std::path::{Component, Path};

use anyhow::{Result, bail};

use super::render::USER;
use base::files::{Owner, UserHome};

/// User and group id of the login user; further users have the next numbers.
const FIRST_ID: u32 = 1000;
/// The ids of people; those of services are lower, login.defs(5).
const PEOPLE: RangeInclusive<u32> = FIRST_ID..=59_999;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub id: u32,
    pub sudo: bool,
    /// Hash of the password; with `None` no password opens the account.
    pub hash: Option<model::config::Secret>,
}

impl Account {
    /// The login user, who administers the node.
    #[must_use]
    pub fn login(hash: Option<model::config::Secret>) -> Self {
        Self { name: USER.to_owned(), id: FIRST_ID, sudo: true, hash }
    }

    /// The user at `index` of the document's further users. Ids follow the order of the document, so that users keep their files
    /// while the order stays.
    #[must_use]
    pub fn further(index: usize, name: &str, sudo: bool, hash: Option<model::config::Secret>) -> Self {
        let id = FIRST_ID + 1 + u32::try_from(index).unwrap_or(0);
        Self { name: name.to_owned(), id, sudo, hash }
    }

    #[must_use]
    pub fn home(&self) -> String {
        format!("/home/{}", self.name)
    }
}

#[derive(Clone, PartialEq, Eq)]
#[allow(missing_debug_implementations)]
pub struct Accounts {
    pub passwd: String,
    pub group: String,
    /// shadow(5); holds hashes.
    pub shadow: String,
    pub gshadow: String,
}

/// The accounts with the users of a document.
#[allow(missing_debug_implementations)]
pub struct MadeAccounts {
    pub accounts: Accounts,
    pub users: Vec<Account>,
    /// Which users could not be made, and why.
    pub warnings: Vec<String>,
}

impl Accounts {
    /// Makes the users exist, with their passwords and their membership of `sudo`, and locks root. Idempotent. If the image
    /// itself has an account of the login user's name or number, or no group `sudo`, that is an error; a further user who cannot
    /// be made is a warning, so that the node starts anyway.
    pub fn with_users(&self, users: &[Account]) -> Result<MadeAccounts> {
        if !self.group.lines().any(|line| name(line) == "sudo") {
            bail!("the image has no group sudo in /etc/group");
        }
        let mut made = MadeAccounts { accounts: self.clone(), users: Vec::new(), warnings: Vec::new() };
        for user in users {
            match refuse_taken(&self.passwd, user, "/etc/passwd") {
                Ok(()) => {
                    made.accounts.put(user);
                    made.users.push(user.clone());
                }
                Err(error) if user.name == USER => return Err(error),
                Err(error) => made.warnings.push(format!("there is no user {}: {error}", user.name)),
            }
        }
        // The image's root may have any password.
        made.accounts.shadow = edit(&made.accounts.shadow, "root", 1, |_| "!*".to_owned());
        Ok(made)
    }

    /// The homes of people. A service's home may be a shared directory: Debian's `bin` has `/bin`.
    #[must_use]
    pub fn homes(&self) -> Vec<UserHome> {
        self.passwd.lines().filter_map(home).collect()
    }

    /// The name of the user's own group. A group of the system that has the user's name (Debian has `operator`, `disk` and
    /// others) has rights that the user must not get.
    fn own_group(&self, user: &Account) -> String {
        let id = user.id.to_string();
        let other = |line: &str| name(line) == user.name && line.split(':').nth(2) != Some(&*id);
        if self.group.lines().any(other) { format!("user{id}") } else { user.name.clone() }
    }

    fn put(&mut self, user: &Account) {
        let Account { name, id, .. } = user;
        let group = self.own_group(user);
        self.passwd = put(&self.passwd, &format!("{name}:x:{id}:{id}::{}:/bin/bash", user.home()));
        self.group = put(&self.group, &format!("{group}:x:{id}:"));
        // `*` matches no password, yet the account is not locked, so keys still work. Without a date of the last change the
        // password does not age, and the file does not depend on the day it was written.
        let hash = user.hash.as_ref().map_or("*", |hash| hash.expose());
        self.shadow = put(&self.shadow, &format!("{name}:{hash}::0:99999:7:::"));
        self.gshadow = put(&self.gshadow, &format!("{group}:!::"));
        if user.sudo {
            self.group = edit(&self.group, "sudo", 3, |members| join_group(members, name));
            self.gshadow = edit(&self.gshadow, "sudo", 3, |members| join_group(members, name));
        }
    }
}

/// The home in an entry of passwd(5), if it is a person's and below another directory than `/`.
fn home(line: &str) -> Option<UserHome> {
    let fields: Vec<&str> = line.split(':').collect();
    let [_, _, user, group, _, path, ..] = fields[..] else { return None };
    let owner = Owner { user: user.parse().ok()?, group: group.parse().ok()? };
    let path = Path::new(path);
    let names = path.components().filter(|component| matches!(component, Component::Normal(_))).count();
    // The root directory is the one further component: no component leads upwards.
    let plain = path.is_absolute() && path.components().count() == names + 1;
    (PEOPLE.contains(&owner.user) && plain && names > 1).then(|| UserHome { path: path.to_owned(), owner })
}

fn name(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

/// An entry with the same id, or with the same name and another id, belongs to another user.
fn refuse_taken(text: &str, user: &Account, file: &str) -> Result<()> {
    let id = user.id.to_string();
    let same = |line: &&str| (name(line) == user.name) != (line.split(':').nth(2) == Some(&*id));
    match text.lines().find(same) {
        Some(line) if name(line) == user.name => bail!("{file} has another account {}", user.name),
        Some(line) => bail!("{file} gives the id {id} of {} to {}", user.name, name(line)),
        None => Ok(()),
    }
}

/// Replaces the entry of the same name in its place, or adds it at the end.
fn put(text: &str, entry: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    match lines.iter().position(|line| name(line) == name(entry)) {
        Some(index) => lines[index] = entry,
        None => lines.push(entry),
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Changes one field of the entry `wanted`, if there is one.
fn edit(text: &str, wanted: &str, field: usize, change: impl Fn(&str) -> String) -> String {
    let line = |line: &str| {
        if name(line) != wanted {
            return format!("{line}\n");
        }
        let mut fields: Vec<String> = line.split(':').map(str::to_owned).collect();
        if let Some(field) = fields.get_mut(field) {
            *field = change(field);
        }
        fields.join(":") + "\n"
    };
    text.lines().map(line).collect()
}

fn join_group(members: &str, user: &str) -> String {
    let mut members: Vec<&str> = members.split(',').filter(|member| !member.is_empty()).collect();
    if !members.contains(&user) {
        members.push(user);
    }
    members.join(",")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The files of a Debian image, shortened.
    pub(crate) fn debian() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                .into(),
            group: "root:x:0:\ndaemon:x:1:\nsudo:x:27:\nshadow:x:42:\n".into(),
            shadow: "root::19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n".into(),
            gshadow: "root:*::\ndaemon:*::\nsudo:*::\nshadow:*::\n".into(),
        }
    }

    fn made(accounts: &Accounts, users: &[Account]) -> Accounts {
        let made = accounts.with_users(users).unwrap();
        assert_eq!(made.warnings, [""; 0]);
        made.accounts
    }

    fn login(hash: Option<&str>) -> Account {
        Account::login(hash.map(model::config::Secret::new))
    }

    #[test]
    fn further_users_have_the_numbers_that_follow() {
        let operator = Account::further(0, "operator", false, None);
        let accounts = made(&debian(), &[login(None), operator]);
        assert!(accounts.passwd.ends_with("operator:x:1001:1001::/home/operator:/bin/bash\n"));
        assert!(accounts.group.contains("sudo:x:27:rancher\n") && accounts.shadow.contains("operator:*::"));
    }

    #[test]
    fn a_user_gets_no_rights_of_a_group_that_has_its_name() {
        let accounts = made(&debian(), &[login(None), Account::further(0, "shadow", false, None)]);
        assert!(accounts.passwd.ends_with("shadow:x:1001:1001::/home/shadow:/bin/bash\n"));
        assert!(accounts.group.contains("shadow:x:42:\n") && accounts.group.ends_with("user1001:x:1001:\n"));
    }

    #[test]
    fn a_user_that_the_system_has_is_left_out_and_told_of() {
        let users =
            [login(None), Account::further(0, "daemon", true, None), Account::further(1, "me", false, None)];
        let MadeAccounts { accounts, warnings, .. } = debian().with_users(&users).unwrap();
        assert_eq!(warnings, ["there is no user daemon: /etc/passwd has another account daemon"]);
        assert!(accounts.passwd.contains("daemon:x:1:1:") && accounts.passwd.contains("me:x:1002:1002:"));
        assert!(!accounts.group.contains("daemon,") && !accounts.group.contains(",daemon"));
    }

    #[test]
    fn the_login_user_is_added_root_is_locked_and_the_rest_stays() {
        let accounts = made(&debian(), &[login(Some("$y$hash"))]);
        assert_eq!(accounts.passwd, debian().passwd + "rancher:x:1000:1000::/home/rancher:/bin/bash\n");
        assert_eq!(
            accounts.group,
            "root:x:0:\ndaemon:x:1:\nsudo:x:27:rancher\nshadow:x:42:\nrancher:x:1000:\n"
        );
        assert_eq!(
            accounts.shadow,
            "root:!*:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\nrancher:$y$hash::0:99999:7:::\n"
        );
        assert_eq!(accounts.gshadow, "root:*::\ndaemon:*::\nsudo:*::rancher\nshadow:*::\nrancher:!::\n");
    }

    #[test]
    fn a_second_time_changes_only_the_password() {
        let once = made(&debian(), &[login(Some("$y$hash"))]);
        assert!(made(&once, &[login(Some("$y$hash"))]) == once);
        let without = made(&once, &[login(None)]);
        assert!(without.shadow.contains("rancher:*::"));
        assert!(without.passwd == once.passwd && without.group == once.group);
    }

    #[test]
    fn homes_are_those_of_people() {
        let mut accounts = made(&debian(), &[login(None)]);
        accounts.passwd.push_str(
            "up:x:1002:1002::/home/../etc:/bin/sh\ntop:x:1003:1003::/srv:/bin/sh\napp:x:1004:100::/srv/app:/bin/sh\n\
             nobody:x:65534:65534::/nonexistent/x:/bin/sh\nbroken\n",
        );
        let home = |path: &str, user, group| UserHome { path: path.into(), owner: Owner { user, group } };
        assert_eq!(accounts.homes(), [home("/home/rancher", 1000, 1000), home("/srv/app", 1004, 100)]);
    }

    #[test]
    fn other_members_of_sudo_stay() {
        let mut accounts = debian();
        accounts.group = accounts.group.replace("sudo:x:27:", "sudo:x:27:admin");
        assert!(made(&accounts, &[login(None)]).group.contains("sudo:x:27:admin,rancher\n"));
    }

    #[test]
    fn an_id_that_is_taken_and_a_missing_group_are_named() {
        let mut accounts = debian();
        accounts.passwd.push_str("someone:x:1000:1000::/:/bin/sh\n");
        let error = accounts.with_users(&[login(None)]).err().unwrap().to_string();
        assert!(error.contains("someone") && error.contains("/etc/passwd"), "{error}");
        let mut accounts = debian();
        accounts.group = "root:x:0:\n".into();
        assert!(accounts.with_users(&[login(None)]).err().unwrap().to_string().contains("sudo"));
    }
}
