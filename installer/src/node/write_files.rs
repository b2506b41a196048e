//! `os.write_files`: files of any content that the document asks for, wherever the node can write.
//!
//! A file that cannot be written is told of and left out: the node shall start, so that somebody can mend its document.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::accounts::Accounts;
use super::apply::below;
use crate::config::WriteFile;
use crate::config::encoding;
use crate::files;

/// What a file that says nothing else may: its owner reads and writes.
const MODE: u32 = 0o600;

/// Writes one file below `root` unless it is there already, and says whether it wrote. Names of owners are those of
/// `accounts`.
pub(super) fn write(root: &Path, file: &WriteFile, accounts: &Accounts) -> Result<bool> {
    let bytes = encoding::decode(file).map_err(anyhow::Error::msg)?;
    let mode = match &file.permissions {
        Some(mode) => u32::from_str_radix(mode, 8).context("reading the permissions")? & 0o7777,
        None => MODE,
    };
    let owner = file.owner.as_deref().map_or(Ok((0, 0)), |owner| owner_of(owner, accounts))?;
    refuse_links(root, &file.path)?;
    let path = below(root, &file.path);
    let root_runs = Uid::effective().is_root();
    let same = fs::symlink_metadata(&path).is_ok_and(|there| {
        there.is_file()
            && there.permissions().mode() & 0o7777 == mode
            && (!root_runs || (there.uid(), there.gid()) == owner)
    }) && fs::read(&path).is_ok_and(|there| there == bytes);
    if same {
        return Ok(false);
    }
    files::write_atomically(&path, &bytes, mode)?;
    if root_runs {
        lchown(&path, Some(owner.0), Some(owner.1))
            .with_context(|| format!("giving {} its owner", path.display()))?;
        // A change of the owner takes the set-user-id bits away.
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(true)
}

/// A link above the file could lead anywhere, out of the node's root too: it was made by whoever may write there.
pub(super) fn refuse_links(root: &Path, path: &str) -> Result<()> {
    let mut at = root.to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    for part in &parts[..parts.len().saturating_sub(1)] {
        at.push(part);
        if fs::symlink_metadata(&at).is_ok_and(|metadata| metadata.is_symlink()) {
            bail!("/{} is a link", at.strip_prefix(root).unwrap_or(&at).display());
        }
    }
    Ok(())
}

/// User and group id of `USER` or `USER:GROUP`, each a name or a number. Without a group it is the user's own.
fn owner_of(owner: &str, accounts: &Accounts) -> Result<(u32, u32)> {
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
    Ok((user_id, group_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::accounts::tests::debian;

    fn file(text: &str) -> WriteFile {
        crate::config::parse(&format!("os: {{write_files: [{text}]}}"), "f").unwrap().os.write_files.remove(0)
    }

    #[test]
    fn a_file_is_written_once_with_its_mode() {
        let root = tempfile::tempdir().unwrap();
        let motd = file("{path: /etc/new/motd, content: aGVsbG8K, encoding: base64, permissions: '0644'}");
        assert!(write(root.path(), &motd, &debian()).unwrap());
        let path = root.path().join("etc/new/motd");
        assert_eq!(fs::read_to_string(&path).unwrap(), "hello\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        assert!(!write(root.path(), &motd, &debian()).unwrap());
        let quiet = file("{path: /etc/quiet, content: x}");
        write(root.path(), &quiet, &debian()).unwrap();
        assert_eq!(fs::metadata(root.path().join("etc/quiet")).unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn owners_are_those_of_the_node() {
        let accounts = debian();
        assert_eq!(owner_of("daemon", &accounts).unwrap(), (1, 1));
        assert_eq!(owner_of("daemon:shadow", &accounts).unwrap(), (1, 42));
        assert_eq!(owner_of("1234:5", &accounts).unwrap(), (1234, 5));
        assert_eq!(owner_of("1234", &accounts).unwrap(), (1234, 1234));
        assert!(owner_of("nobody-here", &accounts).unwrap_err().to_string().contains("nobody-here"));
        assert!(owner_of("daemon:none", &accounts).is_err());
    }

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join("home")).unwrap();
        let error = write(root.path(), &file("{path: /home/x, content: a}"), &debian()).unwrap_err();
        assert!(error.to_string().contains("/home is a link"), "{error}");
        assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    }
}
