//! Loading the kernel that starts where the running one crashes, at each start of a node: that of the running slot, so that it always
//! fits what runs, also after an update.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::{Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result};

use super::initrd_part::InitrdPart;
use crate::update::SlotDevices;
use base::command::{Invocation, Runner};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::{read_text, read_text_if_present};
use base::size::ByteSize;
use formats::{initrd, kernel_modules};
use install::execute::SlotSource;
use machine::crash_dumps;
use machine::host::crash_reservation;
use machine::paths::{DOCUMENT, below};
use medium::payload_sources::PayloadSource;
use model::architecture::Architecture;
use model::boot::crash::{COMMAND_LINE_BYTES, command_line};
use model::boot::{BootParameters, BootVolume};
use model::config;
use model::hardware::coverage::INITRD_DUMP_PROGRAM;
use model::release::Purpose;

/// What a kernel takes for itself and the tables of its memory.
const KERNEL_MEMORY: ByteSize = ByteSize::mib(64);
/// What systemd, udev and makedumpfile take. The packed initrd has been freed before they start.
const PROGRAMS_MEMORY: ByteSize = ByteSize::mib(48);
/// What the running kernel adds to the command line: where the old memory is described (`elfcorehdr=`).
const ADDED_BYTES: usize = 64;

/// A kernel for a crash, as the running one takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashKernel {
    pub kernel: Vec<u8>,
    pub initrd: Vec<u8>,
    pub line: CString,
}

/// Prepares the kernel for the node at `root` and hands it to `loader`. Returns what was done, in a line.
///
/// # Errors
/// [`Class::Hardware`] if no memory or too little is reserved, or the release has no makedumpfile; the error of `loader`.
pub fn load(root: &Path, runner: &dyn Runner, loader: &dyn Fn(&CrashKernel) -> Result<()>) -> Result<String> {
    crash_dumps::remove_partial(&below(root, crash_dumps::DIRECTORY))?;
    let config = config::load_applicable(&below(root, DOCUMENT), &[])?.config;
    if !config.os.host.has_crash_kernel() {
        return Ok("The document asks for no crash kernel.".to_owned());
    }
    let line = read_text(&root.join("proc/cmdline"))?;
    let Some(installed) = BootParameters::parse(&line)? else {
        return Ok("This is not an installed node.".to_owned());
    };
    let Some(reserved) = crash_reservation(&root.join("sys")) else {
        return Err(Failure::new(Class::Hardware, "no memory is reserved for a crash kernel")
            .hint("Restart the node: the kernel reserves it as it starts. With less than 2 GiB of memory, give os.host.crash_kernel a size.")
            .into());
    };
    let source = SlotDevices::of_root(root, installed.slot, &BootVolume::of_root(&line)?)?.source()?;
    let kernel = CrashKernel {
        kernel: boot_file(&source, Purpose::Kernel)?,
        initrd: part_of(&boot_file(&source, Purpose::Initrd)?, &used_part(root, runner)?, reserved)?,
        line: crash_line(&line)?,
    };
    loader(&kernel)?;
    let size = ByteSize::bytes(kernel.initrd.len() as u64);
    Ok(format!("The crash kernel is loaded, with an initrd of {size}; {reserved} are reserved for it."))
}

fn crash_line(line: &str) -> Result<CString> {
    let line =
        command_line(line, Architecture::of_this_program())?.context("this is not an installed node")?;
    if line.len() + ADDED_BYTES >= COMMAND_LINE_BYTES {
        let what =
            format!("the command line of the crash kernel has {} bytes, which are too many", line.len());
        return Err(Failure::new(Class::Invalid, what)
            .hint("Shorten os.additional_kernel_arguments in the node document.")
            .into());
    }
    CString::new(line).context("the kernel's command line contains a zero byte")
}

/// A file of the boot volume as the release has it. A damaged one is not loaded.
fn boot_file(source: &SlotSource, purpose: Purpose) -> Result<Vec<u8>> {
    let payload =
        source.release.payload(purpose).context("the release manifest of the slot is not complete")?;
    let mut bytes = Vec::new();
    source.open(payload)?.read_to_end(&mut bytes)?;
    if Digest::of(&bytes) != payload.sha256 {
        let what = format!("{} on the boot volume of the running slot is damaged", payload.path);
        return Err(Failure::new(Class::Verification, what)
            .hint("Write the slot anew: sudo installer update repair, or an update.")
            .into());
    }
    Ok(bytes)
}

/// What the machine at `root` uses of an initrd.
fn used_part(root: &Path, runner: &dyn Runner) -> Result<InitrdPart> {
    let release = read_text(&root.join("proc/sys/kernel/osrelease"))?;
    let modules = root.join("lib/modules").join(release.trim());
    let files = kernel_modules::paths(&modules).with_context(|| format!("listing {}", modules.display()))?;
    let loaded = read_text_if_present(&root.join("proc/modules"))?.unwrap_or_default();
    let mut part = InitrdPart::of_loaded(&loaded, &files);
    let known: BTreeSet<_> = part.modules.iter().filter(|name| files.contains_key(*name)).collect();
    if !known.is_empty() {
        // Modules can be packed, and modinfo(8) reads them however they are.
        let asked = Invocation::new("modinfo").args(["--field", "firmware"]).args(known);
        let firmware = runner.run(&asked).context("asking which firmware the loaded modules have")?;
        part.firmware = String::from_utf8_lossy(&firmware).lines().map(str::to_owned).collect();
    }
    Ok(part)
}

/// The part of an initrd, packed anew.
fn part_of(whole: &[u8], part: &InitrdPart, reserved: ByteSize) -> Result<Vec<u8>> {
    let has_program = Cell::new(false);
    let keep = |path: &str| {
        has_program.set(has_program.get() || path == INITRD_DUMP_PROGRAM);
        part.has(path)
    };
    let mut packed = Vec::new();
    let unpacked = initrd::reduce(&mut Cursor::new(whole), &keep, &mut packed)
        .context("taking the initrd of the running slot apart")?;
    if !has_program.get() {
        return Err(Failure::new(Class::Hardware, "the initrd of this release has no makedumpfile")
            .hint("Build the release with the package makedumpfile in base.debian.include.")
            .into());
    }
    let beside = (packed.len() as u64).max(PROGRAMS_MEMORY.get());
    let needed = ByteSize::bytes(KERNEL_MEMORY.get() + unpacked + beside);
    if needed > reserved {
        let what = format!("the crash kernel needs {needed}, and {reserved} are reserved for it");
        let least = needed.get().div_ceil(64 << 20) * 64;
        return Err(Failure::new(Class::Hardware, what)
            .hint(format!(
                "Set os.host.crash_kernel to {least}M, run sudo installer apply, and restart the node."
            ))
            .into());
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use formats::initrd::{ArchivedFile, archive};
    use std::fs;
    use testing::runner::ScriptedRunner;

    const LINE: &str = "root=PARTUUID=0a0b0c0d-0000-4000-8000-000000000004 nqrust.slot=a \
        nqrust.config=PARTUUID=0a0b0c0d-0000-4000-8000-000000000003 \
        nqrust.persistent=PARTUUID=0a0b0c0d-0000-4000-8000-000000000007";

    fn node(document: &str, reserved: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("oem/node.yaml", document),
            ("proc/cmdline", LINE),
            (
                "proc/modules",
                "virtio_blk 40960 7 - Live 0x0\nvirtio_net 40960 7 - Live 0x0\nbuiltin_only 1 0 - Live 0x0\n",
            ),
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("sys/kernel/kexec_crash_size", reserved),
            ("lib/modules/6.12.1/kernel/drivers/block/virtio_blk.ko.xz", "x"),
            ("lib/modules/6.12.1/kernel/drivers/net/virtio_net.ko.xz", "x"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn refused(root: &Path) -> anyhow::Error {
        load(root, &ScriptedRunner::silent(), &|_| panic!("nothing is to be loaded")).unwrap_err()
    }

    #[test]
    fn a_node_that_asks_for_none_gets_none_and_loses_what_a_power_cut_left() {
        let root = node("os: {host: {crash_kernel: false}}\n", "268435456\n");
        let partial = below(root.path(), crash_dumps::DIRECTORY).join("20261129T023105Z.partial");
        fs::create_dir_all(&partial).unwrap();
        let told = load(root.path(), &ScriptedRunner::silent(), &|_| panic!("it is not asked for")).unwrap();
        assert_eq!(told, "The document asks for no crash kernel.");
        assert!(!partial.exists());
    }

    #[test]
    fn without_reserved_memory_it_is_said_that_a_restart_brings_it() {
        let root = node("os: {host: {crash_kernel: true}}\n", "0\n");
        let error = refused(root.path());
        assert_eq!(class_of(&error), Class::Hardware);
        let text = render(&error);
        assert!(text.contains("no memory is reserved") && text.contains("Restart the node"), "{text}");
    }

    #[test]
    fn what_the_machine_uses_is_asked_of_its_modules() {
        let root = node("", "");
        let runner = ScriptedRunner::silent().answer("modinfo", "a/b.bin\nc.fw\n");
        let part = used_part(root.path(), &runner).unwrap();
        // What is part of the kernel has no file to be asked.
        assert_eq!(runner.commands(), ["modinfo --field firmware virtio_blk"]);
        assert_eq!(part.modules, ["builtin_only".to_owned(), "virtio_blk".to_owned()].into());
        assert_eq!(part.firmware, ["a/b.bin".to_owned(), "c.fw".to_owned()].into());
    }

    fn whole(further: &[&str]) -> Vec<u8> {
        let files = ["init", "usr/lib/modules/1/kernel/a.ko", "usr/lib/firmware/a.fw"];
        let content = [7; 5000];
        let file = |path| ArchivedFile { path, content: &content, executable: true };
        let files: Vec<_> = files.iter().chain(further).map(|path| file(*path)).collect();
        let mut out = Vec::new();
        initrd::pack(&mut Cursor::new(archive(&files)), &mut out).unwrap();
        out
    }

    #[test]
    fn the_initrd_has_what_is_used_and_fits_into_what_is_reserved() {
        let part = InitrdPart::default();
        let mut plain = Vec::new();
        let made = part_of(&whole(&[INITRD_DUMP_PROGRAM]), &part, ByteSize::mib(113)).unwrap();
        initrd::unpack(&mut Cursor::new(made), &mut plain).unwrap();
        let entries = initrd::entries(&mut Cursor::new(plain)).unwrap();
        let files: Vec<_> = entries
            .keys()
            .filter(|path| path.contains('/') && !entries[*path].mode.is_multiple_of(0o40000))
            .collect();
        assert!(entries.contains_key(INITRD_DUMP_PROGRAM) && entries.contains_key("init"), "{files:?}");
        assert!(!entries.keys().any(|path| path.ends_with(".ko") || path.ends_with(".fw")), "{files:?}");
        let error = part_of(&whole(&[INITRD_DUMP_PROGRAM]), &part, ByteSize::mib(112)).unwrap_err();
        assert!(error.to_string().contains("and 112 MiB are reserved for it"), "{error}");
        assert!(render(&error).contains("Set os.host.crash_kernel to 128M,"), "{}", render(&error));
    }

    #[test]
    fn a_release_without_makedumpfile_says_which_package_has_it() {
        let error = part_of(&whole(&[]), &InitrdPart::default(), ByteSize::mib(256)).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(render(&error).contains("the package makedumpfile"), "{}", render(&error));
    }

    #[test]
    fn the_line_leaves_room_for_what_the_kernel_adds() {
        assert!(crash_line(LINE).unwrap().to_str().unwrap().contains("nqrust.crash=PARTUUID="));
        let long = format!("{LINE} {}", "a=b ".repeat(480));
        let error = crash_line(&long).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(error.to_string().contains("too many"), "{error}");
    }
}
