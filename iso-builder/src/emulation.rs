//! Programs of another architecture than that of the builder: those of the base, which a build runs inside of it. The kernel starts
//! them with QEMU's emulation of user programs, which it has to be told (Documentation/admin-guide/binfmt-misc.rst).
//!
//! A host that has been told, as by Debian's package `qemu-user-static` with `binfmt-support`, needs nothing else. Otherwise the sandbox
//! tells the kernel for itself: since Linux 6.7 each user namespace has a list of its own, which ends with it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use base::command::Invocation;
use base::failure::{Class, Classify, Failure};
use model::architecture::Architecture;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::elf;

const LIST: &str = "/proc/sys/fs/binfmt_misc";
/// The first Linux in which a user namespace can have a list of its own.
const OWN_LIST: (u32, u32) = (6, 7);
/// Set for a process that is in a user namespace which this builder has made.
pub(crate) const OWN_NAMESPACE: &str = "NQRUST_USER_NAMESPACE";

/// Where the programs of a step can be run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PreparedSandbox {
    /// In this process.
    Here,
    /// They were run by another process of this program, which has ended with this exit code.
    Elsewhere(u8),
}

/// Checks that this host can run programs of `architecture`.
///
/// # Errors
/// [`Class::Hardware`], with what it lacks.
pub(crate) fn check(architecture: Architecture) -> Result<()> {
    if is_own(architecture) || is_known(Path::new(LIST), architecture) {
        return Ok(());
    }
    emulator(architecture)?;
    let release = nix::sys::utsname::uname().context("asking for the release of the kernel")?;
    let release = release.release().to_string_lossy();
    match version(&release).is_some_and(|found| found < OWN_LIST) {
        false => Ok(()),
        true => {
            let (major, minor) = OWN_LIST;
            let why = anyhow!(
                "no emulator is registered on it, and its kernel {release} is older than {major}.{minor}, which lets a build register one"
            );
            Err(refused(architecture).because(why).into())
        }
    }
}

/// Makes sure that programs of `architecture` start, in this process or in another one: `again` is the command of this program that does
/// the same work.
pub(crate) fn prepare(architecture: Architecture, again: &[&Path]) -> Result<PreparedSandbox> {
    if is_own(architecture) || is_known(Path::new(LIST), architecture) {
        return Ok(PreparedSandbox::Here);
    }
    // The list is that of the user namespace, and what is not the builder's own stays as it is.
    if std::env::var_os(OWN_NAMESPACE).is_none() {
        return in_user_namespace(again).map(PreparedSandbox::Elsewhere);
    }
    register(architecture)?;
    Ok(PreparedSandbox::Here)
}

/// The command that starts `program`, which is static and for `architecture`, on this host. What it starts itself are programs of the host.
pub(crate) fn invocation(program: &Path, architecture: Architecture) -> Result<Invocation> {
    if is_own(architecture) || is_known(Path::new(LIST), architecture) {
        return Ok(Invocation::new(program.as_os_str()));
    }
    Ok(Invocation::new(emulator(architecture)?.as_os_str()).arg(program))
}

/// True if this machine runs programs of `architecture` by itself.
fn is_own(architecture: Architecture) -> bool {
    Architecture::of_this_program() == architecture
}

/// True if the kernel has been told of programs of `architecture`, with an emulator that it finds in a changed root too (flag `F`).
fn is_known(list: &Path, architecture: Architecture) -> bool {
    let entry = fs::read_to_string(list.join(format!("qemu-{}", architecture.kernel()))).unwrap_or_default();
    let mut lines = entry.lines();
    let flags = |line: &str| line.strip_prefix("flags:").is_some_and(|flags| flags.contains('F'));
    lines.next() == Some("enabled") && lines.any(flags)
}

/// QEMU for programs of `architecture`, which has to be static: it is started where none of its libraries are.
fn emulator(architecture: Architecture) -> Result<PathBuf, Failure> {
    let name = format!("qemu-{}", architecture.kernel());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).collect::<Vec<_>>();
    let names = [format!("{name}-static"), name];
    let found = names.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    let is_static = |path: &PathBuf| {
        let program = File::open(path).and_then(|file| elf::read(&file));
        program.is_ok_and(|program| program.is_some_and(|program| program.is_static))
    };
    let found = found.into_iter().find(is_static);
    found.ok_or_else(|| refused(architecture).because(anyhow!("there is no static {}", names[1])))
}

fn refused(architecture: Architecture) -> Failure {
    Failure::new(Class::Hardware, format!("this host does not run programs for {architecture}"))
        .hint("Install the packages qemu-user-static and binfmt-support, or build on a machine of that architecture.")
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Runs this program again as root of a user namespace in which every id stands for itself, with processes and mounts of its own; returns
/// its exit code.
///
/// Only a process outside can write the map of a new namespace, so a shell waits there for a line.
fn in_user_namespace(again: &[&Path]) -> Result<u8> {
    const SCRIPT: &str = r#"read -r line && echo "$2" >"/proc/$1/gid_map" && echo "$3" >"/proc/$1/uid_map""#;
    let what = || "making a user namespace".to_owned();
    let map = |file: &str| fs::read_to_string(file).map(|map| same_ids(&map)).with_context(what);
    let (groups, users) = (map("/proc/self/gid_map")?, map("/proc/self/uid_map")?);
    let mut helper = Command::new("sh");
    helper.args(["-c", SCRIPT, "sh", &std::process::id().to_string(), &groups, &users]);
    let mut helper = helper.stdin(Stdio::piped()).spawn().class(Class::Hardware, what)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID)
        .class(Class::Hardware, what)?;
    let line = helper.stdin.take().context("telling the helper")?.write_all(b"\n");
    let mapped = helper.wait().with_context(what)?;
    if line.is_err() || !mapped.success() {
        let why = anyhow!("its ids could not be mapped");
        return Err(Failure::new(Class::Hardware, what()).because(why).into());
    }
    // Once there are ids, root takes its own.
    let mut command = Command::new(std::env::current_exe().context("finding this program's own file")?);
    command.args(again).env(OWN_NAMESPACE, "1").uid(0).gid(0);
    let status = command.status().context("starting this program in a user namespace")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The map of a further user namespace in which each id that there is in this one stands for itself. `map` is that of this one: in each line
/// the first id inside, the first outside, and how many there are (user_namespaces(7)).
fn same_ids(map: &str) -> String {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace();
        let (inside, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(format!("{inside} {inside} {count}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Tells the kernel of programs of `architecture`, for this user namespace.
fn register(architecture: Architecture) -> Result<()> {
    let emulator = emulator(architecture)?;
    mount(Some("binfmt_misc"), LIST, Some("binfmt_misc"), MsFlags::empty(), None::<&str>)
        .map_err(|error| refused(architecture).because(error))?;
    fs::write(Path::new(LIST).join("register"), entry(architecture, &emulator))
        .map_err(|error| refused(architecture).because(error))?;
    Ok(())
}

/// The line that tells the kernel: the first 20 bytes of an ELF program of the architecture, which of their bits count, and what starts
/// it. The bytes are those of QEMU's `scripts/qemu-binfmt-conf.sh`.
fn entry(architecture: Architecture, emulator: &Path) -> Vec<u8> {
    let machine: u8 = match architecture {
        Architecture::Amd64 => 0x3e,
        Architecture::Arm64 => 0xb7,
    };
    let mut magic = b"\x7fELF\x02\x01\x01".to_vec();
    magic.resize(16, 0);
    magic.extend([2, 0, machine, 0]);
    // The system for which a program is made, and whether its address is fixed, do not count.
    let mut mask = vec![0xff; 20];
    (mask[7], mask[16]) = (0, 0xfe);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let name = format!("qemu-{}", architecture.kernel());
    format!(":{name}:M:0:{}:{}:{}:OCF", hex(&magic), hex(&mask), emulator.display()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_of_programs_by_their_first_bytes() {
        let line = String::from_utf8(entry(Architecture::Arm64, Path::new("/usr/bin/qemu"))).unwrap();
        assert_eq!(
            line,
            ":qemu-aarch64:M:0:\\x7f\\x45\\x4c\\x46\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:\
             \\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:/usr/bin/qemu:OCF"
        );
        // The kernel takes no line of more than a page, and an interpreter of at most 127 bytes.
        assert!(line.len() < 1920);
    }

    #[test]
    fn a_host_knows_an_architecture_if_its_entry_is_enabled_and_holds_its_emulator() {
        let list = tempfile::tempdir().unwrap();
        let arm64 = Architecture::Arm64;
        assert!(!is_known(list.path(), arm64));
        for (text, known) in [
            ("enabled\ninterpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P\nflags: POCF\noffset 0\n", true),
            ("disabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: OCF\n", false),
            ("enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: OC\n", false),
            ("enabled\ninterpreter /usr/bin/Flags\nflags: \n", false),
        ] {
            fs::write(list.path().join("qemu-aarch64"), text).unwrap();
            assert_eq!(is_known(list.path(), arm64), known, "{text}");
        }
    }

    #[test]
    fn a_further_namespace_has_the_ids_of_the_one_around_it() {
        let whole = "         0          0 4294967295\n";
        assert_eq!(same_ids(whole), "0 0 4294967295");
        let of_user = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(same_ids(of_user), "0 0 1\n1 1 65536");
        assert_eq!(same_ids(""), "");
    }

    #[test]
    fn the_version_of_a_kernel_is_that_of_its_release() {
        for (release, found) in [
            ("6.18.44-fc", Some((6, 18))),
            ("6.1.0-40-amd64", Some((6, 1))),
            ("7.0-rc1", Some((7, 0))),
            ("strange", None),
        ] {
            assert_eq!(version(release), found, "{release}");
        }
    }
}
