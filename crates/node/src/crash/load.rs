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
use base::failure::{Class, Failure, causes, hints};
use base::files::{read_text, read_text_if_present};
use base::size::ByteSize;
use formats::{initrd, kernel_image, kernel_modules};
use install::execute::SlotSource;
use machine::crash_dumps::{self, UnexplainedEnd};
use machine::host::{self, crash_reservation};
use machine::paths::{DOCUMENT, below};
use medium::payload_sources::PayloadSource;
use model::architecture::Architecture;
use model::boot::crash::{COMMAND_LINE_BYTES, command_line};
use model::boot::{BootParameters, BootVolume};
use model::config;
use model::hardware::coverage::INITRD_DUMP_PROGRAM;
use model::release::Purpose;

/// What a kernel takes for itself whose image does not say. That of Debian 13 says 56 MiB; of 256 MiB it had 55 in use as it began to
/// allocate, with the descriptions of its pages and without the initrd (measured in QEMU).
const KERNEL_MEMORY: ByteSize = ByteSize::mib(64);
/// The kernel describes each page of 4 KiB in 64 bytes (`struct page`).
const PAGE_TABLE_PART: u64 = 64;
/// What a kernel with one processor allocates beside that, for drivers, queues of disks and file systems.
const ALLOCATED_MEMORY: ByteSize = ByteSize::mib(24);
/// What systemd, udev and makedumpfile take beside their files, which are in the unpacked initrd. makedumpfile lists the pages of the
/// crashed kernel in what is free, and goes over its memory several times where that does not hold all of them (makedumpfile(8),
/// `--cyclic-buffer`), so this does not grow with the memory of the machine.
const PROGRAMS_MEMORY: ByteSize = ByteSize::mib(48);
/// Tells the starts of a machine apart.
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// What the running kernel adds to the command line: where the old memory is described (`elfcorehdr=`).
const ADDED_BYTES: usize = 64;

/// A kernel for a crash, as the running one takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashKernel {
    pub kernel: Vec<u8>,
    pub initrd: Vec<u8>,
    pub line: CString,
}

/// Prepares the kernel for the node at `root` and hands it to `loader`. Returns what was done, in a line. Why none is loaded is kept for the
/// status.
///
/// # Errors
/// [`Class::Hardware`] if no memory or too little is reserved, the release has no makedumpfile, or the dump would go to a disk over the
/// network; the error of `loader`.
pub fn load(root: &Path, runner: &dyn Runner, loader: &dyn Fn(&CrashKernel) -> Result<()>) -> Result<String> {
    let boot_id = read_text(&root.join(BOOT_ID))?;
    let told = settle_previous(root, boot_id.trim());
    let prepared = prepare(root, runner, loader);
    host::note_crash_kernel(root, prepared.as_ref().err().map(reason).as_deref())?;
    let text = match prepared? {
        Preparation::NotNeeded(why) => why.to_owned(),
        Preparation::Loaded { initrd, reserved } => {
            crash_dumps::arm(root, boot_id.trim())?;
            format!("The crash kernel is loaded, with an initrd of {initrd}; {reserved} are reserved for it.")
        }
    };
    Ok(match told? {
        Some(end) => format!("{text} Before, {end}."),
        None => text,
    })
}

/// The causes of an error and what to do, in a clause.
fn reason(error: &anyhow::Error) -> String {
    let hints: Vec<_> = hints(error).map(|hint| hint.trim_end_matches('.')).collect();
    let causes = causes(error).join(": ");
    if hints.is_empty() { causes } else { format!("{causes} ({})", hints.join(". ")) }
}

/// How preparing a crash kernel ended.
enum Preparation {
    /// Why nothing was to be done, as a sentence.
    NotNeeded(&'static str),
    Loaded {
        initrd: ByteSize,
        reserved: ByteSize,
    },
}

/// Ends what the previous start has left, and judges how it ended.
fn settle_previous(root: &Path, boot_id: &str) -> Result<Option<UnexplainedEnd>> {
    crash_dumps::settle_partial(&below(root, crash_dumps::DIRECTORY))?;
    crash_dumps::judge_previous_end(root, boot_id)
}

/// Hands the kernel to `loader` where the node is to have one.
fn prepare(
    root: &Path,
    runner: &dyn Runner,
    loader: &dyn Fn(&CrashKernel) -> Result<()>,
) -> Result<Preparation> {
    let config = config::load_applicable(&below(root, DOCUMENT), &[])?.config;
    if !config.os.host.has_crash_kernel() {
        return Ok(Preparation::NotNeeded("The document asks for no crash kernel."));
    }
    let line = read_text(&root.join("proc/cmdline"))?;
    let Some(installed) = BootParameters::parse(&line)? else {
        return Ok(Preparation::NotNeeded("This is not an installed node."));
    };
    if installed.network_disks.system {
        let what = "the persistent partition is reached over the network, and a crash kernel has none";
        return Err(Failure::new(Class::Hardware, what)
            .hint("Remove os.host.crash_kernel from the node document. Without it the node restarts after a crash, too.")
            .into());
    }
    let Some(reserved) = crash_reservation(&root.join("sys")) else {
        return Err(not_reserved(&line).into());
    };
    let source = SlotDevices::of_root(root, installed.slot, &BootVolume::of_root(&line)?)?.source()?;
    let kernel = boot_file(&source, Purpose::Kernel)?;
    let memory = CrashMemoryUse { kernel: kernel_image::memory_bytes(&kernel), reserved };
    let initrd = part_of(&boot_file(&source, Purpose::Initrd)?, &used_part(root, runner)?, memory)?;
    let kernel = CrashKernel { kernel, initrd, line: crash_line(&line)? };
    loader(&kernel)?;
    Ok(Preparation::Loaded { initrd: ByteSize::bytes(kernel.initrd.len() as u64), reserved })
}

/// Why the kernel that was started with `line` has reserved nothing, and what to do.
fn not_reserved(line: &str) -> Failure {
    let none = "no memory is reserved for a crash kernel";
    if line.split_whitespace().any(|word| word.starts_with("crashkernel=")) {
        return Failure::new(Class::Hardware, none)
            .because(anyhow::anyhow!("the kernel was started with crashkernel= and found no room"))
            .hint(
                "With less than 2 GiB of memory, give os.host.crash_kernel a size. Otherwise give it a smaller one, such as 256M, and \
                 restart the node: the kernel needs that much in one piece (journalctl -k --grep=crashkernel).",
            );
    }
    Failure::new(Class::Hardware, none).hint("Restart the node: the kernel reserves the memory as it starts.")
}

/// What decides whether a crash kernel fits into its memory.
#[derive(Clone, Copy, Debug)]
struct CrashMemoryUse {
    /// What the kernel takes for itself in bytes, if its image says.
    kernel: Option<u64>,
    reserved: ByteSize,
}

impl CrashMemoryUse {
    /// What it takes with an initrd that has these bytes unpacked and packed. As it starts, both are in memory; the packed one is freed
    /// before programs start.
    fn needed(self, unpacked: u64, packed: u64) -> ByteSize {
        let kernel = self.kernel.unwrap_or(KERNEL_MEMORY.get());
        let pages = self.reserved.get() / PAGE_TABLE_PART;
        let beside = packed.max(PROGRAMS_MEMORY.get());
        ByteSize::bytes(kernel + pages + ALLOCATED_MEMORY.get() + unpacked + beside)
    }
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
fn part_of(whole: &[u8], part: &InitrdPart, memory: CrashMemoryUse) -> Result<Vec<u8>> {
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
    let needed = memory.needed(unpacked, packed.len() as u64);
    let reserved = memory.reserved;
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
            ("proc/sys/kernel/random/boot_id", "7\n"),
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
        let directory = below(root.path(), crash_dumps::DIRECTORY);
        let partial = directory.join("20261129T023105Z.partial");
        fs::create_dir_all(&partial).unwrap();
        crash_dumps::arm(root.path(), "6").unwrap();
        let told = load(root.path(), &ScriptedRunner::silent(), &|_| panic!("it is not asked for")).unwrap();
        assert!(told.starts_with("The document asks for no crash kernel. Before, the start of "), "{told}");
        assert!(!partial.exists() && !directory.join(crash_dumps::ARMED).exists());
    }

    #[test]
    fn without_reserved_memory_it_is_said_that_a_restart_brings_it() {
        let root = node("os: {host: {crash_kernel: true}}\n", "0\n");
        let error = refused(root.path());
        assert_eq!(class_of(&error), Class::Hardware);
        let text = render(&error);
        assert!(text.contains("no memory is reserved") && text.contains("Restart the node"), "{text}");
        // The kernel knew of it, so another start does not help.
        fs::write(root.path().join("proc/cmdline"), format!("{LINE} crashkernel=2G-64G:320M")).unwrap();
        let text = render(&refused(root.path()));
        assert!(
            text.contains("found no room") && text.contains("give os.host.crash_kernel a size"),
            "{text}"
        );
    }

    #[test]
    fn a_node_whose_persistent_partition_is_over_the_network_gets_none_and_its_status_says_why() {
        let root = node("os: {host: {crash_kernel: 384M}}\n", "402653184\n");
        let line = format!("{LINE} crashkernel=384M nqrust.network_disks=system");
        fs::write(root.path().join("proc/cmdline"), &line).unwrap();
        let error = refused(root.path());
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(render(&error).contains("Remove os.host.crash_kernel"), "{}", render(&error));
        let config = config::load_applicable(&below(root.path(), DOCUMENT), &[]).unwrap().config;
        let states = host::states(root.path(), &config.os);
        let expected = "crash_kernel: not loaded, 384 MiB reserved: the persistent partition is reached over the network, and a crash \
                        kernel has none (Remove os.host.crash_kernel from the node document. Without it the node restarts after a \
                        crash, too), NOT as the document asks";
        assert_eq!(states[0].to_string(), expected);
        // Data over the network is in no dump's way; the next step fails here, as there is no slot.
        fs::write(root.path().join("proc/cmdline"), line.replace("=system", "=data")).unwrap();
        assert!(!refused(root.path()).to_string().contains("over the network"));
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
        // 60 MiB for the kernel, 24 for what it allocates, 48 for programs, 2 for the tables of pages, and a few KiB for files.
        let memory = |reserved| CrashMemoryUse { kernel: Some(60 << 20), reserved: ByteSize::mib(reserved) };
        let made = part_of(&whole(&[INITRD_DUMP_PROGRAM]), &part, memory(135)).unwrap();
        initrd::unpack(&mut Cursor::new(made), &mut plain).unwrap();
        let entries = initrd::entries(&mut Cursor::new(plain)).unwrap();
        let files: Vec<_> = entries
            .keys()
            .filter(|path| path.contains('/') && !entries[*path].mode.is_multiple_of(0o40000))
            .collect();
        assert!(entries.contains_key(INITRD_DUMP_PROGRAM) && entries.contains_key("init"), "{files:?}");
        assert!(!entries.keys().any(|path| path.ends_with(".ko") || path.ends_with(".fw")), "{files:?}");
        let error = part_of(&whole(&[INITRD_DUMP_PROGRAM]), &part, memory(134)).unwrap_err();
        assert!(error.to_string().contains("and 134 MiB are reserved for it"), "{error}");
        assert!(render(&error).contains("Set os.host.crash_kernel to 192M,"), "{}", render(&error));
    }

    #[test]
    fn a_release_without_makedumpfile_says_which_package_has_it() {
        let memory = CrashMemoryUse { kernel: None, reserved: ByteSize::mib(256) };
        let error = part_of(&whole(&[]), &InitrdPart::default(), memory).unwrap_err();
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
