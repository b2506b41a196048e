//! The accounts of a node: edits of the image's own `/etc/{passwd,group,shadow,gshadow}` that keep every
//! other entry as it is.

use anyhow::{Result, bail};

use super::render::USER;

/// User and group id of the login user.
pub const ID: u32 = 1000;
/// Its home directory.
pub const HOME: &str = "/home/rancher";

/// The texts of the four account files.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_debug_implementations)]
pub struct Accounts {
    /// passwd(5)
    pub passwd: String,
    /// group(5)
    pub group: String,
    /// shadow(5); holds hashes.
    pub shadow: String,
    /// gshadow(5)
    pub gshadow: String,
}

impl Accounts {
    /// Makes the login user exist, a member of `sudo`, with `hash` as its password (none: no password lets
    /// it in), and locks root. A second time changes nothing. Another account with the same id, and an image
    /// without the group `sudo`, are errors.
    pub fn with_login_user(&self, hash: Option<&str>) -> Result<Self> {
        let id = ID.to_string();
        refuse_taken(&self.passwd, &id, "/etc/passwd")?;
        refuse_taken(&self.group, &id, "/etc/group")?;
        if !self.group.lines().any(|line| name(line) == "sudo") {
            bail!("the image has no group sudo in /etc/group");
        }
        let passwd = put(&self.passwd, &format!("{USER}:x:{id}:{id}::{HOME}:/bin/bash"));
        let group = put(&self.group, &format!("{USER}:x:{id}:"));
        // `*` matches no password, yet the account is not locked, so keys still work. Without a date of the
        // last change the password does not age, and the file does not depend on the day it was written.
        let shadow = put(&self.shadow, &format!("{USER}:{}::0:99999:7:::", hash.unwrap_or("*")));
        let gshadow = put(&self.gshadow, &format!("{USER}:!::"));
        Ok(Self {
            passwd,
            group: edit(&group, "sudo", 3, join_group),
            shadow: edit(&shadow, "root", 1, |_| "!*".to_owned()),
            gshadow: edit(&gshadow, "sudo", 3, join_group),
        })
    }
}

fn name(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

fn refuse_taken(text: &str, id: &str, file: &str) -> Result<()> {
    let taken = text.lines().find(|line| name(line) != USER && line.split(':').nth(2) == Some(id));
    match taken {
        Some(line) => bail!("{file} gives the id {id} of {USER} to {}", name(line)),
        None => Ok(()),
    }
}

/// Replaces the entry of the same name where it stands, or adds it at the end.
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

/// Adds the login user to a list of members.
fn join_group(members: &str) -> String {
    let mut members: Vec<&str> = members.split(',').filter(|member| !member.is_empty()).collect();
    if !members.contains(&USER) {
        members.push(USER);
    }
    members.join(",")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As a Debian image has them, shortened.
    pub(in crate::node) fn debian() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                .into(),
            group: "root:x:0:\ndaemon:x:1:\nsudo:x:27:\nshadow:x:42:\n".into(),
            shadow: "root::19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n".into(),
            gshadow: "root:*::\ndaemon:*::\nsudo:*::\nshadow:*::\n".into(),
        }
    }

    #[test]
    fn the_login_user_is_added_root_is_locked_and_the_rest_stays() {
        let accounts = debian().with_login_user(Some("$y$hash")).unwrap();
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
        let once = debian().with_login_user(Some("$y$hash")).unwrap();
        assert!(once.with_login_user(Some("$y$hash")).unwrap() == once);
        let without = once.with_login_user(None).unwrap();
        assert!(without.shadow.contains("rancher:*::"));
        assert!(without.passwd == once.passwd && without.group == once.group);
    }

    #[test]
    fn other_members_of_sudo_stay() {
        let mut accounts = debian();
        accounts.group = accounts.group.replace("sudo:x:27:", "sudo:x:27:admin");
        assert!(accounts.with_login_user(None).unwrap().group.contains("sudo:x:27:admin,rancher\n"));
    }

    #[test]
    fn an_id_that_is_taken_and_a_missing_group_are_named() {
        let mut accounts = debian();
        accounts.passwd.push_str("someone:x:1000:1000::/:/bin/sh\n");
        let error = accounts.with_login_user(None).err().unwrap().to_string();
        assert!(error.contains("someone") && error.contains("/etc/passwd"), "{error}");
        let mut accounts = debian();
        accounts.group = "root:x:0:\n".into();
        assert!(accounts.with_login_user(None).err().unwrap().to_string().contains("sudo"));
    }
}
