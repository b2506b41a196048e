//! `os.write_files`: files of any content that the document asks for, wherever the node can write.
//!
//! A file that cannot be written is reported and left out: the node has to start, so that its document can be corrected.

use anyhow::{Context, Result, bail};

use super::accounts::Accounts;
use base::files::{Attributes, Owner, Root};
use model::config::WriteFile;
use model::config::encoding;

/// The default mode: its owner reads and writes.
const DEFAULT_MODE: u32 = 0o600;

/// Writes one file below `root` unless it is there already, and returns whether it wrote. Names of owners are those of
/// `accounts`; without an owner the file belongs to the user whose home it is in, else to root.
pub(super) fn write(root: &Root, file: &WriteFile, accounts: &Accounts) -> Result<bool> {
    let bytes = encoding::decode(file).map_err(anyhow::Error::msg)?;
    let mode = match &file.permissions {
        Some(mode) => u32::from_str_radix(mode, 8).context("reading the permissions")? & 0o7777,
        None => DEFAULT_MODE,
    };
    let owner = file.owner.as_deref().map(|owner| owner_of(owner, accounts)).transpose()?;
    root.write(&*file.path, &bytes, Attributes { mode, owner })
}

/// User and group id of `USER` or `USER:GROUP`, each a name or a number. Without a group it is the user's own.
fn owner_of(owner: &str, accounts: &Accounts) -> Result<Owner> {
    let (user, group) = owner.split_once(':').map_or((owner, None), |(user, group)| (user, Some(group)));
    let entry = accounts
        .passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|entry| entry[0] == user);
    let number = |entry: &[&str], field: usize| entry.get(field).and_then(|text| text.parse::<u32>().ok());
    let user_id = match (&entry, user.parse()) {
        (Some(entry), _) => number(entry, 2).with_context(|| format!("finding the number of {user}"))?,
        (None, Ok(id)) => id,
        (None, Err(_)) => bail!("there is no user {user}"),
    };
    let group_id = match group {
        None => entry.and_then(|entry| number(&entry, 3)).unwrap_or(user_id),
        Some(group) => {
            let mut groups = accounts.group.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let known = groups.find(|entry| entry[0] == group).and_then(|entry| number(&entry, 2));
            known.or_else(|| group.parse().ok()).with_context(|| format!("there is no group {group}"))?
        }
    };
    Ok(Owner { user: user_id, group: group_id })
}

#[cfg(test)]
mod tests;
