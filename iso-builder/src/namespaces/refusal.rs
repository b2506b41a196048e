//! Explains why namespaces cannot be created, and how to allow them, from the output of `unshare` and the state of this process.
//!
//! The kernel gives the same answer, `EPERM`, for a seccomp filter, a sysctl, AppArmor and a missing capability, and a container has a
//! switch of its own for each.

use std::fs;
use std::path::PathBuf;

use anyhow::anyhow;
use base::failure::{Class, Failure};
use nix::unistd::{Uid, User};

/// The capabilities that map other users and groups (capabilities(7)): `CAP_SETGID`, `CAP_SETUID`.
const SET_IDS: [u32; 2] = [6, 7];
/// `CAP_SETFCAP`, which maps a user namespace's root to root.
const SET_FILE_CAPABILITIES: u32 = 31;
/// How many ids trees of Debian have.
const IDS: u64 = 65_536;

const FURTHER: &str = "See docs/how-to/ci.md for the settings that a container needs.";

/// The state of this process in `/proc`, and its user.
#[derive(Debug)]
pub(super) struct ProcessContext {
    root: PathBuf,
    uid: Uid,
    /// None where no account has this id.
    name: Option<String>,
}

impl ProcessContext {
    pub(super) fn of_this_process() -> Self {
        let uid = Uid::effective();
        let name = User::from_uid(uid).ok().flatten().map(|user| user.name);
        Self { root: "/".into(), uid, name }
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    fn status(&self, key: &str) -> Option<String> {
        let text = self.text("proc/self/status");
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim));
        line.map(str::to_owned)
    }

    fn has(&self, set: &str, capability: u32) -> bool {
        let bits = self.status(set).and_then(|bits| u64::from_str_radix(&bits, 16).ok());
        bits.is_some_and(|bits| bits & (1 << capability) != 0)
    }

    /// True if this process has a capability, by its number.
    pub(super) fn is_capable(&self, capability: u32) -> bool {
        self.has("CapEff", capability)
    }

    fn is_sysctl(&self, path: &str, value: &str) -> bool {
        self.text(&format!("proc/sys/{path}")).trim() == value
    }

    /// The name of the AppArmor profile that this process is confined by.
    fn apparmor(&self) -> Option<String> {
        let read = ["apparmor/current", "current"].map(|file| self.text(&format!("proc/self/attr/{file}")));
        let profile = read.iter().find_map(|text| text.trim().strip_suffix(" (enforce)"))?;
        (profile != "unconfined").then(|| profile.to_owned())
    }

    /// How many ids there are in the user namespace of this process (user_namespaces(7)).
    fn ids(&self) -> u64 {
        let text = self.text("proc/self/uid_map");
        text.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum()
    }

    /// True if `/etc/subuid` and `/etc/subgid` have a range for this user.
    fn has_ranges(&self) -> bool {
        let of_user = |line: &str| {
            let owner = line.split(':').next().unwrap_or_default();
            Some(owner) == self.name.as_deref() || owner == self.uid.to_string()
        };
        ["etc/subuid", "etc/subgid"].iter().all(|file| self.text(file).lines().any(of_user))
    }
}

/// The failure for the output of `unshare` and of the programs that it runs.
pub(super) fn explain(told: &str, here: &ProcessContext) -> Failure {
    let told = told.trim();
    let failure = Failure::new(Class::Hardware, "creating the user namespace in which the builder is root");
    let (why, next) = reason(told, here);
    let because = match why {
        Some(why) => anyhow!("{why} ({told})"),
        None => anyhow!("{told}"),
    };
    failure.because(because).hint(next)
}

fn reason(told: &str, here: &ProcessContext) -> (Option<String>, String) {
    if told.contains("idmap") || told.contains("subuid") || told.contains("subgid") {
        return of_ids(here);
    }
    if told.contains("mount") || told.contains("propagation") {
        return of_mounts(here);
    }
    of_creation(here)
}

/// The kernel did not make a namespace.
fn of_creation(here: &ProcessContext) -> (Option<String>, String) {
    let told = |why: &str, next: &str| (Some(why.to_owned()), next.to_owned());
    if here.is_sysctl("user/max_user_namespaces", "0") {
        return told(
            "user namespaces are disabled on this host (user.max_user_namespaces is 0)",
            "Run as root of the host: sysctl user.max_user_namespaces=15000",
        );
    }
    if here.is_sysctl("kernel/unprivileged_userns_clone", "0") {
        return told(
            "this host forbids user namespaces to ordinary users (kernel.unprivileged_userns_clone is 0)",
            "Run as root of the host: sysctl kernel.unprivileged_userns_clone=1",
        );
    }
    if here.status("Seccomp").as_deref() == Some("2") {
        let next = format!(
            "Docker and Podman: --security-opt seccomp=unconfined. Kubernetes: seccompProfile: {{type: Unconfined}} in the \
             securityContext. {FURTHER}"
        );
        return (Some("the seccomp filter of the container forbids it".into()), next);
    }
    if here.is_sysctl("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return told(
            "AppArmor forbids them to ordinary users (kernel.apparmor_restrict_unprivileged_userns is 1)",
            "Run as root of the host: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    unknown()
}

/// The namespace was made, and mounting in it was refused.
fn of_mounts(here: &ProcessContext) -> (Option<String>, String) {
    if let Some(profile) = here.apparmor() {
        let next = format!(
            "Docker and Podman: --security-opt apparmor=unconfined. Kubernetes: appArmorProfile: {{type: Unconfined}} in the \
             securityContext. {FURTHER}"
        );
        return (Some(format!("the AppArmor profile {profile} forbids mounts")), next);
    }
    of_creation(here)
}

/// The namespace was made, and other users could not be mapped into it.
fn of_ids(here: &ProcessContext) -> (Option<String>, String) {
    let told = |why: String, next: &str| (Some(why), format!("{next} {FURTHER}"));
    if here.name.is_none() {
        let why = format!(
            "no account has the user id {}, so there is no range of subordinate ids for it",
            here.uid
        );
        return told(
            why,
            "Build as a user that has an account: in the builder's container image, `builder` or `root`.",
        );
    }
    let missing: Vec<_> = SET_IDS
        .into_iter()
        .chain(here.uid.is_root().then_some(SET_FILE_CAPABILITIES))
        .filter(|capability| !here.has("CapBnd", *capability))
        .collect();
    if !missing.is_empty() {
        let why = "this container lacks one of the capabilities SETUID, SETGID and SETFCAP";
        return told(why.into(), "Add all three to the capabilities of the container.");
    }
    if !here.uid.is_root() && here.status("NoNewPrivs").as_deref() == Some("1") {
        let why = "newuidmap cannot gain privileges (no_new_privs is set)";
        let next = "Docker and Podman: remove --security-opt no-new-privileges. Kubernetes: allowPrivilegeEscalation: true. \
                    Or build as root of the container, which does not need newuidmap.";
        return told(why.into(), next);
    }
    if !here.has_ranges() {
        return unknown();
    }
    if here.ids() <= IDS {
        let why = format!(
            "the user namespace of this container has {} ids, which is too few for a range of subordinate ids",
            here.ids()
        );
        return told(
            why,
            "Build as root of the container, which is not root of the host in such a namespace.",
        );
    }
    unknown()
}

fn unknown() -> (Option<String>, String) {
    let next = "As an ordinary user the build needs the package uidmap, a range for the user in /etc/subuid and \
                /etc/subgid, and a kernel that lets users make user namespaces. It also works as root.";
    (None, next.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPABLE: &str = "CapBnd:\t00000000a80425fb\n";
    const INCAPABLE: &str = "CapBnd:\t0000000000000000\n";
    const CREATE: &str = "unshare: unshare failed: Operation not permitted";
    const MAP: &str = "newuidmap: write to uid_map failed: Operation not permitted";
    const MOUNT: &str = "unshare: cannot change root filesystem propagation: Permission denied";

    /// The failure of a process of user 1000, or of root, with these files.
    fn explained(told: &str, root: bool, named: bool, files: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let uid = Uid::from_raw(if root { 0 } else { 1000 });
        let name = named.then(|| if root { "root" } else { "builder" }.to_owned());
        let here = ProcessContext { root: directory.path().into(), uid, name };
        let error: anyhow::Error = explain(told, &here).into();
        assert_eq!(base::failure::class_of(&error), Class::Hardware);
        let rendered = base::failure::render(&error);
        assert!(rendered.contains(told), "{rendered}");
        rendered
    }

    #[test]
    fn each_reason_is_named_with_the_setting_that_allows_namespaces() {
        let ranges = [("etc/subuid", "builder:100000:65536\n"), ("etc/subgid", "1000:100000:65536\n")];
        let status = |text: &'static str| ("proc/self/status", text);
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
        let cases: [Case<'_>; 9] = [
            (CREATE, &[("proc/sys/user/max_user_namespaces", "0\n")], "sysctl user.max_user_namespaces="),
            (CREATE, &[("proc/sys/kernel/unprivileged_userns_clone", "0\n")], "unprivileged_userns_clone=1"),
            (CREATE, &[status("Seccomp:\t2\n")], "seccomp=unconfined"),
            (
                CREATE,
                &[status("Seccomp:\t0\n"), ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")],
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (MOUNT, &[("proc/self/attr/current", "docker-default (enforce)\n")], "apparmor=unconfined"),
            (MAP, &[status(INCAPABLE)], "lacks one of the capabilities"),
            (MAP, &[status("CapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\n")], "allowPrivilegeEscalation: true"),
            (
                MAP,
                &[status(CAPABLE), ranges[0], ranges[1], ("proc/self/uid_map", "0 1000 1\n1 100000 65535\n")],
                "the user namespace of this container has 65536 ids",
            ),
            (MAP, &[status(CAPABLE), ("proc/self/uid_map", "0 0 4294967295\n")], "package uidmap"),
        ];
        for (told, files, expected) in cases {
            let rendered = explained(told, false, true, files);
            assert!(rendered.contains(expected), "{expected}: {rendered}");
        }
    }

    #[test]
    fn a_user_id_without_an_account_is_named() {
        let rendered = explained(MAP, false, false, &[("proc/self/status", CAPABLE)]);
        assert!(rendered.contains("no account has the user id 1000"), "{rendered}");
    }

    #[test]
    fn root_of_a_container_gains_no_privileges_and_needs_none_but_a_capability() {
        let status = "CapBnd:\t00000000280425fb\nNoNewPrivs:\t1\n";
        let rendered = explained(MAP, true, true, &[("proc/self/status", status)]);
        assert!(rendered.contains("SETFCAP") && !rendered.contains("no_new_privs"), "{rendered}");
    }

    #[test]
    fn a_capability_is_one_bit_of_the_effective_set() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("proc/self")).unwrap();
        fs::write(directory.path().join("proc/self/status"), "Name:\tx\nCapEff:\t0000000000200000\n")
            .unwrap();
        let here = ProcessContext { root: directory.path().into(), uid: Uid::from_raw(0), name: None };
        assert!(here.is_capable(21) && !here.is_capable(20) && !here.is_capable(22));
    }
}
