//! A user without any rights except in the own home, against root who writes files there: the user's threads change the directory
//! as fast as they can, ten thousand times over. None of it may affect a file outside of the home.

use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::*;
use crate::accounts::Accounts;

const BOB: u32 = 1001;
/// The number of files that are written, or removed, while the user's threads run.
const ROUNDS: usize = 10_000;

/// A directory that stands for `/` on a node that has a user bob, and what bob must not change.
struct Node {
    place: tempfile::TempDir,
    accounts: Accounts,
}

impl Node {
    /// In memory: on a disk ten thousand files that are flushed take minutes.
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let place = tempfile::tempdir_in(parent).unwrap();
        let node = Self { place, accounts: debian() };
        for name in ["", "etc", "home", "home/bob"] {
            fs::create_dir_all(node.at(name)).unwrap();
            fs::set_permissions(node.at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in ["shadow", "secret"] {
            fs::write(node.at("etc").join(name), name).unwrap();
            fs::set_permissions(node.at("etc").join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        chown(node.at("home/bob"), Some(BOB), Some(BOB)).unwrap();
        let mut accounts = debian();
        accounts.passwd.push_str("bob:x:1001:1001::/home/bob:/bin/bash\n");
        Self { accounts, ..node }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn root(&self) -> Root {
        Root::open(self.place.path()).unwrap().with_homes(self.accounts.homes())
    }

    /// Writes one of two versions of a file. Damage to bob's own files does not matter.
    fn write(&self, root: &Root, file: &WriteFile, round: usize) -> bool {
        let content = format!("round {}", round % 2);
        let file = WriteFile { content: content.parse().unwrap(), ..file.clone() };
        super::super::write(root, &file, &self.accounts).unwrap_or(false)
    }

    /// Runs `work` [`ROUNDS`] times while each of `attacks` runs again and again with bob's rights. Returns how often each of
    /// them finished.
    fn under_attack(&self, attacks: &[&(dyn Fn() + Sync)], mut work: impl FnMut(usize)) -> Vec<usize> {
        let over = AtomicBool::new(false);
        let counts: Vec<_> = attacks.iter().map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|scope| {
            for (attack, count) in attacks.iter().zip(&counts) {
                let over = &over;
                scope.spawn(move || {
                    // For this thread alone, and without root's rights to any file.
                    setfsgid(Gid::from_raw(BOB));
                    setfsuid(Uid::from_raw(BOB));
                    while !over.load(Ordering::Relaxed) {
                        attack();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            (0..ROUNDS).for_each(&mut work);
            over.store(true, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    /// The files outside of the home are unchanged.
    fn assert_untouched(&self) {
        let mut names: Vec<_> =
            fs::read_dir(self.at("etc")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["secret", "shadow"]);
        for name in ["secret", "shadow"] {
            let path = self.at("etc").join(name);
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert_eq!((metadata.mode(), metadata.uid()), (0o100_600, 0), "{name}");
            assert_eq!(fs::read_to_string(&path).unwrap(), name);
        }
    }

    /// If bob does nothing, the file is written and is bob's.
    fn assert_written(&self, root: &Root, file: &WriteFile) {
        let path = self.at(file.path.trim_start_matches('/'));
        let _ = fs::remove_dir_all(self.at("home/bob/conf"));
        let written = (0..2).filter(|round| self.write(root, file, *round)).count();
        assert!(written > 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "round 1");
        assert_eq!(fs::symlink_metadata(&path).unwrap().uid(), BOB);
    }
}

#[test]
fn a_temporary_name_that_a_user_swaps_for_a_link_reaches_no_other_file() {
    if !testing::privileges::root_runs() {
        return;
    }
    let (node, file) = (Node::new(), file("{path: /home/bob/app.conf, content: x, permissions: '0644'}"));
    let (root, home) = (node.root(), node.at("home/bob"));
    let shadow = Path::new("../../etc/shadow");
    // The name that earlier versions used is predictable.
    let foreseen = || {
        let _ = symlink(shadow, home.join(format!(".app.conf.{}.new", std::process::id())));
    };
    // Any new name, as soon as it is seen.
    let seen = || {
        for entry in fs::read_dir(&home).into_iter().flatten().flatten() {
            if entry.file_name() != "app.conf" && symlink(shadow, home.join("link")).is_ok() {
                let _ = fs::rename(home.join("link"), entry.path());
            }
        }
        let _ = fs::remove_file(home.join("link"));
    };
    let counts = node.under_attack(&[&foreseen, &seen], |round| {
        node.write(&root, &file, round);
    });
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    node.assert_untouched();
    node.assert_written(&root, &file);
}

#[test]
fn a_file_that_a_user_swaps_for_a_link_passes_no_mode_or_owner_on() {
    if !testing::privileges::root_runs() {
        return;
    }
    let (node, file) = (Node::new(), file("{path: /home/bob/app2.conf, content: x, permissions: '0666'}"));
    let (root, home) = (node.root(), node.at("home/bob"));
    let swap = || {
        let _ = symlink("../../etc/secret", home.join("link"));
        let _ = fs::rename(home.join("link"), home.join("app2.conf"));
    };
    let counts = node.under_attack(&[&swap], |round| {
        node.write(&root, &file, round);
    });
    assert!(counts[0] > 100, "{counts:?}");
    node.assert_untouched();
    node.assert_written(&root, &file);
}

#[test]
fn a_directory_that_a_user_swaps_for_a_link_leads_nowhere() {
    if !testing::privileges::root_runs() {
        return;
    }
    let (node, file) = (Node::new(), file("{path: /home/bob/conf/secret, content: x, permissions: '0666'}"));
    let deeper = super::file("{path: /home/bob/conf/new/deeper/secret, content: x}");
    let (root, home) = (node.root(), node.at("home/bob"));
    let swap = || {
        let _ = symlink("../../etc", home.join("link"));
        let _ = fs::create_dir(home.join("conf"));
        let (link, conf) = (home.join("link"), home.join("conf"));
        let _ = renameat2(AT_FDCWD, &link, AT_FDCWD, &conf, RenameFlags::RENAME_EXCHANGE);
    };
    // What root has just made is removed before root opens it, and replaced.
    let made = || {
        let _ = fs::rename(home.join("conf/new"), home.join("conf/gone"));
        let _ = symlink("../../../etc", home.join("conf/new"));
        let _ = fs::remove_file(home.join("conf/new"));
        let _ = fs::remove_dir_all(home.join("conf/gone"));
    };
    let counts = node.under_attack(&[&swap, &made], |round| match round % 4 {
        0 | 1 => drop(node.write(&root, &file, round)),
        2 => drop(node.write(&root, &deeper, round)),
        _ => drop(root.remove(&*file.path)),
    });
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    node.assert_untouched();
    let _ = fs::remove_file(home.join("conf"));
    node.assert_written(&root, &file);
}
