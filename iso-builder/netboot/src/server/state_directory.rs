//! Checks that nobody else can change the directory of `--state`. It holds the private key of the server's authority and
//! decides which machines are installed again, so a directory that belongs to another user or that others can write is
//! refused. [`run`](super::run) calls this before it opens anything in it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify, Failure};
use base::files::make_directory;
use nix::unistd::{Uid, getegid};

/// Write permission of the group and of others.
const GROUP: u32 = 0o020;
const OTHERS: u32 = 0o002;
/// Only the owner of an entry can replace it, as in `/tmp` (inode(7)).
const STICKY: u32 = 0o1000;

/// Makes the directory if it does not exist. Refuses ([`Class::Invalid`]) one that belongs neither to this user nor to
/// root, that others can write, or that others can replace.
pub fn prepare(directory: &Path) -> Result<()> {
    make_directory(directory, 0o700).class(Class::DiskIo, || "preparing --state".into())?;
    let looking = || format!("checking --state {}", directory.display());
    // The target of a link is checked here, and the directories above it below.
    let real = directory.canonicalize().class(Class::DiskIo, looking)?;
    let is_ours = |uid: Uid| uid.is_root() || uid == Uid::effective();
    let own = fs::metadata(&real).class(Class::DiskIo, looking)?;
    if !is_ours(Uid::from_raw(own.uid())) {
        let user = Uid::effective();
        return Err(refused(
            directory,
            &format!("{} belongs to user {}", real.display(), own.uid()),
            &format!(
                "Give --state a directory of user {user}, who runs this server, or run `chown {user} {}` after \
             checking its content.",
                real.display()
            ),
        ));
    }
    if let Some(who) = writers(&own, GROUP | OTHERS) {
        return Err(writable(directory, &real, who));
    }
    for parent in real.ancestors().skip(1) {
        let found = fs::metadata(parent).class(Class::DiskIo, looking)?;
        // A private group of this user may write: it has no other members.
        let own_group = found.gid() == 0 || found.gid() == getegid().as_raw();
        let bits = if own_group { OTHERS } else { GROUP | OTHERS };
        if let Some(who) = writers(&found, bits).filter(|_| found.mode() & STICKY == 0) {
            return Err(writable(directory, parent, who));
        }
    }
    Ok(())
}

/// Who may write, of those that `bits` select.
fn writers(found: &Metadata, bits: u32) -> Option<&'static str> {
    let mode = found.permissions().mode() & bits;
    (mode != 0).then_some(if mode & OTHERS != 0 { "everybody" } else { "its group" })
}

fn writable(directory: &Path, path: &Path, who: &str) -> anyhow::Error {
    let path = path.display();
    let hint = format!("Run `chmod go-w {path}`, or give --state another directory.");
    refused(directory, &format!("{who} can write {path}, and so change what this server does"), &hint)
}

fn refused(directory: &Path, why: &str, hint: &str) -> anyhow::Error {
    let what = format!("--state {} is not used", directory.display());
    Failure::new(Class::Invalid, what).because(anyhow!("{why}")).hint(hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use nix::unistd::{Gid, chown};
    use std::path::PathBuf;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory in another one; `parent` and `own` are their permissions.
    fn nested(directory: &Path, parent: u32, own: u32) -> PathBuf {
        let state = directory.join("parent/state");
        fs::create_dir_all(&state).unwrap();
        mode(&state, own);
        mode(state.parent().unwrap(), parent);
        state
    }

    #[test]
    fn a_state_directory_that_others_can_write_is_refused_with_what_to_do() {
        for (parent, own, told) in [
            (0o755, 0o700, None),
            (0o755, 0o755, None),
            (0o1777, 0o700, None),
            (0o755, 0o770, Some(("its group can write", "chmod go-w"))),
            (0o755, 0o702, Some(("everybody can write", "chmod go-w"))),
            // The sticky bit keeps entries, not the directory.
            (0o755, 0o1777, Some(("everybody can write", "another directory"))),
            (0o777, 0o700, Some(("everybody can write", "/parent`"))),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let prepared = prepare(&nested(directory.path(), parent, own));
            let Some((why, next)) = told else {
                prepared.unwrap();
                continue;
            };
            let error = prepared.unwrap_err();
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Invalid, "{text}");
            assert!(text.contains(why) && text.contains(next), "{parent:o} {own:o}: {text}");
        }
    }

    #[test]
    fn a_new_state_directory_is_for_its_owner_alone_and_a_link_is_judged_by_what_it_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("a/b/state");
        prepare(&state).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        let open = nested(directory.path(), 0o777, 0o700);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(open, &link).unwrap();
        assert!(render(&prepare(&link).unwrap_err()).contains("everybody can write"));
    }

    #[test]
    fn a_state_directory_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = nested(directory.path(), 0o755, 0o700);
        if Uid::effective().is_root() {
            chown(&state, Some(Uid::from_raw(65534)), None::<Gid>).unwrap();
            let text = render(&prepare(&state).unwrap_err());
            assert!(text.contains("belongs to user 65534") && text.contains("chown 0"), "{text}");
        } else {
            // Only root can make a directory of another user; a directory of root's is fine unless others can write it.
            let text = render(&prepare(Path::new("/tmp")).unwrap_err());
            assert!(text.contains("everybody can write /tmp"), "{text}");
        }
    }
}
