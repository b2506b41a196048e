//! File access with a user's rights in a process of root: the kernel then checks permissions as for that user.
//!
//! Linux keeps the identity for file access per thread (setfsuid(2)): other threads go on as root, and no process has to
//! be forked. While it is not root's, the capabilities that override file permissions are gone too (capabilities(7),
//! "Effect of user ID changes on capabilities"). Supplementary groups stay those of the process.

use std::io;
use std::marker::PhantomData;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::owner::Owner;

/// Not a valid identity: the kernel ignores it and returns the present one.
const ASK: u32 = u32::MAX;

/// Another user's identity for this thread's file access, until the value is dropped.
pub(super) struct BorrowedIdentity {
    before: Owner,
    /// Keeps the value on its thread, to which the identity belongs.
    _thread: PhantomData<*const ()>,
}

impl BorrowedIdentity {
    /// Takes the identity of `owner`.
    ///
    /// # Errors
    /// The kernel refuses it: this process is not root's, or its user namespace does not have that user.
    pub(super) fn like(owner: Owner) -> io::Result<Self> {
        // The group first: without root's user id it could not be changed any more.
        let group = setfsgid(Gid::from_raw(owner.group)).as_raw();
        let user = setfsuid(Uid::from_raw(owner.user)).as_raw();
        let acting = Self { before: Owner { user, group }, _thread: PhantomData };
        let now = (setfsuid(Uid::from_raw(ASK)).as_raw(), setfsgid(Gid::from_raw(ASK)).as_raw());
        if now != (owner.user, owner.group) {
            let what = format!("cannot switch to user {} and group {}", owner.user, owner.group);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(acting)
    }
}

impl Drop for BorrowedIdentity {
    fn drop(&mut self) {
        setfsuid(Uid::from_raw(self.before.user));
        setfsgid(Gid::from_raw(self.before.group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use testing::privileges::root_runs;

    #[test]
    fn the_rights_are_a_users_until_the_end_of_the_scope() {
        if !root_runs() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        {
            let _acting = BorrowedIdentity::like(Owner { user: 1001, group: 1001 }).unwrap();
            assert_eq!(std::fs::read(&secret).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(std::fs::read(&secret).unwrap(), b"x");
    }
}
