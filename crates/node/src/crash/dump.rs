//! Writing the dump, in the initrd of the kernel that has started in place of a crashed one.
//!
//! The kernel's messages come first: they are small, and often enough. The dump has the pages of the kernel itself (makedumpfile(8), `-d
//! 31`), which hold secrets, so only root may read it. It never takes the room that the node needs, and a start of the node goes on
//! whatever becomes of it. A node that crashes again and again keeps its newest dump until a newer one is complete.

use std::fs::{self, File};
use std::iter;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};

use base::command::{Invocation, Runner};
use base::failure::{Class, Classify, Failure, causes};
use base::files::{FileSystemRoom, make_directory, read_text_if_present, write_atomically};
use base::meminfo;
use base::size::ByteSize;
use machine::crash_dumps::{self, CrashRecord, DIRECTORY_ON_PARTITION, DUMP, MESSAGES, PARTIAL, RECORD};
use machine::mount::{MountSource, Mounter};
use model::boot::crash;

/// The memory of the crashed kernel (Documentation/admin-guide/kdump/kdump.rst).
const OLD_MEMORY: &str = "proc/vmcore";
/// How many dumps there are at most, with the new one.
const DUMPS_MAX: usize = 3;
/// The same of crashes without a dump. Their messages have a few MiB at most, the size of the kernel's log.
const MESSAGES_MAX: usize = 10;
/// What a record says until the dump is complete.
const INTERRUPTED: &str = "the machine restarted before the dump was complete";
/// The part of the file system that stays free, of 100: above what the kubelet wants for images and containers before it removes some
/// (<https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>).
const FREE_PERCENT: u64 = 20;
/// A dump is usually smaller than this part of the memory. Measured: a seventh on a node with 3 GiB just after its start, with makedumpfile
/// 1.7.6 of Debian 13, which takes free pages for used ones (<https://github.com/makedumpfile/makedumpfile/issues/16>).
const USUAL_PART: u64 = 4;
/// No dump is smaller.
const SMALLEST: ByteSize = ByteSize::mib(32);
/// A machine with terabytes of memory takes minutes, one with slow disks more.
const DUMP_LIMIT: Duration = Duration::from_secs(3600);
/// What precedes the reason in the kernel's messages.
const PANIC: &str = "Kernel panic - not syncing: ";

/// What a dump may take of a file system once so many bytes more are free.
fn largest_dump(room: FileSystemRoom, more: u64) -> ByteSize {
    let free = ByteSize::bytes(room.free.get().saturating_add(more));
    free.saturating_sub(ByteSize::bytes(room.size.get() / 100 * FREE_PERCENT))
}

/// What a dump works on; tests have their own.
#[allow(missing_debug_implementations)]
pub struct DumpPlaces<'a> {
    /// The root directory of the initrd.
    pub root: &'a Path,
    /// Where the persistent partition is mounted.
    pub mount: &'a Path,
    pub room: &'a dyn Fn(&Path) -> Result<FileSystemRoom>,
}

/// Mounts the partition that the command line names, and writes the dump there. Returns what was written.
///
/// # Errors
/// There is no crashed kernel, the partition does not come, or not even messages can be written.
pub fn dump(
    places: &DumpPlaces<'_>,
    cmdline: &str,
    machine: &mut dyn Mounter,
    runner: &dyn Runner,
    now: Timestamp,
) -> Result<CrashRecord> {
    let volume = crash::volume(cmdline)?.filter(|_| places.root.join(OLD_MEMORY).exists());
    let Some(volume) = volume else {
        return Err(Failure::new(Class::Invalid, "there is no crashed kernel to write a dump of")
            .hint("A kernel that starts in place of a crashed one runs this command.")
            .into());
    };
    make_directory(places.mount, 0o700)?;
    let device = volume.device();
    machine.wait_for(&device)?;
    machine.mount(&MountSource::Ext4 { device, plain: true }, places.mount)?;
    let written = write(places, runner, now);
    // Without it the journal of the file system is replayed at the next mount.
    let unmounted = runner.run(&Invocation::new("umount").arg(places.mount));
    let record = written?;
    unmounted?;
    Ok(record)
}

/// Writes messages, dump and record into a directory with the moment in its name.
fn write(places: &DumpPlaces<'_>, runner: &dyn Runner, now: Timestamp) -> Result<CrashRecord> {
    let directory = places.mount.join(DIRECTORY_ON_PARTITION);
    make_directory(&directory, 0o700)?;
    // What is left of an earlier dump is no reason to write none.
    let _ = crash_dumps::settle_partial(&directory);
    let name = unused_name(&directory, now);
    let (partial, whole) = (directory.join(format!("{name}{PARTIAL}")), directory.join(&name));
    make_directory(&partial, 0o700)?;
    let vmcore = places.root.join(OLD_MEMORY);
    let (messages, dump) = (partial.join(MESSAGES), partial.join(DUMP));
    let told = runner.run(&Invocation::new("makedumpfile").arg("--dump-dmesg").args([&vmcore, &messages]));
    let mut record = CrashRecord {
        kernel: read_text_if_present(&places.root.join("proc/sys/kernel/osrelease"))?
            .unwrap_or_default()
            .trim()
            .to_owned(),
        reason: read_text_if_present(&messages).ok().flatten().and_then(|text| reason(&text)),
        dump_bytes: None,
        lacking: Some(INTERRUPTED.to_owned()),
        memory_available: memory_available(places.root),
    };
    let put_down = |record: &CrashRecord| -> Result<()> {
        write_atomically(&partial.join(RECORD), serde_json::to_string(record)?.as_bytes(), 0o600)?;
        [&messages, &dump].into_iter().filter(|path| path.exists()).try_for_each(|path| flush(path))
    };
    // Of what ends the machine from here on, the next start finds the messages and this.
    put_down(&record)?;
    let _ = crash_dumps::disarm(&directory);
    let written = make_room(places, &directory, &vmcore).and_then(|most| copy(runner, &vmcore, &dump, most));
    match written {
        Ok(bytes) => (record.dump_bytes, record.lacking) = (Some(bytes), None),
        Err(error) => {
            let _ = fs::remove_file(&dump);
            record.lacking = Some(causes(&error).join(": "));
        }
    }
    if let (Err(error), Some(_)) = (&told, &record.lacking) {
        // Neither has come: the record alone says why.
        record.lacking.get_or_insert_default().push_str(&format!("; {}", causes(error).join(": ")));
    }
    put_down(&record)?;
    fs::rename(&partial, &whole).class(Class::DiskIo, || format!("renaming {}", partial.display()))?;
    flush(&directory)?;
    // The dump is there, whether or not older ones can be removed.
    let _ = remove_surplus(&directory, &whole);
    Ok(record)
}

/// A name for a dump of this moment that no other has: the clock of a machine may be wrong at each start in the same way.
fn unused_name(directory: &Path, now: Timestamp) -> String {
    let moments = (0..).map_while(|second| now.checked_add(SignedDuration::from_secs(second)).ok());
    let mut names = moments.map(crash_dumps::name);
    names.find(|name| !directory.join(name).exists()).unwrap_or_else(|| crash_dumps::name(now))
}

fn memory_available(root: &Path) -> Option<u64> {
    let text = read_text_if_present(&root.join("proc/meminfo")).ok().flatten()?;
    meminfo::amount(&text, "MemAvailable").map(ByteSize::get)
}

/// Removes the oldest dumps and the oldest crashes without one beyond what is kept of each. `new` is the newest whatever its name says.
fn remove_surplus(directory: &Path, new: &Path) -> Result<()> {
    let older = crash_dumps::complete(directory).into_iter().map(|(_, path)| path);
    let (mut dumps, mut messages) = (DUMPS_MAX, MESSAGES_MAX);
    for path in iter::once(new.to_owned()).chain(older.filter(|path| path != new)) {
        let left = if path.join(DUMP).exists() { &mut dumps } else { &mut messages };
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => remove(&path)?,
        }
    }
    Ok(())
}

/// How large a dump may be. Removes older dumps where that makes enough room, from the oldest on, but not the newest: the new one may
/// come to nothing.
fn make_room(places: &DumpPlaces<'_>, directory: &Path, vmcore: &Path) -> Result<ByteSize> {
    let memory =
        fs::metadata(vmcore).class(Class::Hardware, || format!("reading {}", vmcore.display()))?.len();
    let wanted = ByteSize::bytes(memory / USUAL_PART).max(SMALLEST);
    let complete = crash_dumps::complete(directory).into_iter().map(|(_, path)| path);
    let mut older: Vec<_> = complete.filter(|path| path.join(DUMP).exists()).skip(1).collect();
    loop {
        let room = (places.room)(directory)?;
        let most = largest_dump(room, 0);
        let takes: u64 = older.iter().map(|path| size_of(path)).sum();
        let enough_with_older = largest_dump(room, takes) >= SMALLEST;
        match older.pop().filter(|_| most < wanted && enough_with_older) {
            Some(oldest) => remove(&oldest)?,
            None if most < SMALLEST => {
                let what = format!("{} are free, and {FREE_PERCENT} % of {} stay free", room.free, room.size);
                return Err(Failure::new(Class::DiskIo, what).into());
            }
            None => return Ok(most),
        }
    }
}

/// Writes the dump, which takes no more than `most`. Returns its size in bytes.
fn copy(runner: &dyn Runner, vmcore: &Path, dump: &Path, most: ByteSize) -> Result<u64> {
    // The kernel ends a program that writes a larger file (prlimit(1)): how large a dump gets is known when it is written.
    let invocation = Invocation::new("prlimit")
        .arg(format!("--fsize={}", most.get()))
        .args(["makedumpfile", "--message-level", "4", "-l", "-d", "31"])
        .args([vmcore, dump])
        .limit(DUMP_LIMIT);
    runner.run(&invocation)?;
    let bytes = fs::metadata(dump).class(Class::DiskIo, || format!("reading {}", dump.display()))?.len();
    if bytes == 0 {
        return Err(Failure::new(Class::DiskIo, "makedumpfile has written nothing").into());
    }
    Ok(bytes)
}

/// The kernel's words for why it stopped, from its messages.
fn reason(messages: &str) -> Option<String> {
    let mut panics = messages.lines().filter_map(|line| line.split_once(PANIC));
    panics
        .next_back()
        .map(|(_, reason)| reason.trim().chars().filter(|c| !c.is_control()).take(200).collect())
}

fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).class(Class::DiskIo, || format!("removing {}", path.display()))
}

fn flush(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .class(Class::DiskIo, || format!("flushing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::cell::RefCell;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use testing::runner::ScriptedRunner;

    const LINE: &str = "quiet nqrust.crash=PARTUUID=0a0b0c0d-0000-4000-8000-000000000007";
    const MESSAGE: &str = "[    1.0] sysrq: Trigger a crash\n[    1.1] Kernel panic - not syncing: sysrq triggered crash\n[    1.2] CPU: 0\n";

    /// A machine with 1 GiB of memory whose kernel has crashed, and a partition of 10 GiB.
    struct Crashed {
        root: tempfile::TempDir,
        /// What is free of the partition, one after the other each time that it is asked.
        free: Vec<u64>,
        dump_bytes: u64,
        commands: Vec<String>,
    }

    struct Partition;

    impl Mounter for Partition {
        fn wait_for(&mut self, device: &Path) -> Result<()> {
            assert_eq!(device, Path::new("/dev/disk/by-partuuid/0a0b0c0d-0000-4000-8000-000000000007"));
            Ok(())
        }

        fn mount(&mut self, source: &MountSource, target: &Path) -> Result<()> {
            assert!(matches!(source, MountSource::Ext4 { plain: true, .. }) && target.is_dir());
            Ok(())
        }
    }

    fn crashed(free: &[u64], dump_bytes: u64) -> Crashed {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join("proc/sys/kernel/osrelease"), "6.12.1-amd64\n").unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal: 240000 kB\nMemAvailable:    2048 kB\n")
            .unwrap();
        File::create(root.path().join(OLD_MEMORY)).unwrap().set_len(1 << 30).unwrap();
        Crashed { root, free: free.to_vec(), dump_bytes, commands: Vec::new() }
    }

    impl Crashed {
        fn directory(&self) -> PathBuf {
            self.root.path().join("mnt").join(DIRECTORY_ON_PARTITION)
        }

        fn dump(&mut self, moment: &str) -> Result<CrashRecord> {
            let left = RefCell::new(self.free.clone());
            let room = |_: &Path| {
                let mut left = left.borrow_mut();
                let free = if left.len() > 1 { left.remove(0) } else { left[0] };
                Ok(FileSystemRoom { size: ByteSize::gib(10), free: ByteSize::bytes(free) })
            };
            let target = |invocation: &Invocation| PathBuf::from(invocation.args.last().unwrap());
            let dump_bytes = self.dump_bytes;
            // The kernel ends a program whose file gets too large.
            let limited = move |invocation: &Invocation| {
                let most =
                    invocation.args[0].to_str().unwrap().strip_prefix("--fsize=").unwrap().parse().unwrap();
                File::create(target(invocation))?.set_len(dump_bytes.min(most))?;
                anyhow::ensure!(dump_bytes <= most, "prlimit ended with signal: 25 (SIGXFSZ)");
                Ok(Vec::new())
            };
            let told = move |invocation: &Invocation| {
                fs::write(target(invocation), MESSAGE)?;
                Ok(Vec::new())
            };
            let runner = ScriptedRunner::silent().reply("--dump-dmesg", told).reply("prlimit", limited);
            let mount = self.root.path().join("mnt");
            let places = DumpPlaces { root: self.root.path(), mount: &mount, room: &room };
            let record = dump(&places, LINE, &mut Partition, &runner, moment.parse().unwrap());
            let root = self.root.path().display().to_string();
            self.commands = runner.commands().iter().map(|line| line.replace(&root, "")).collect();
            record
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.directory()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn messages_and_dump_are_in_a_directory_with_the_moment_in_its_name_and_only_root_reads_them() {
        let mut crashed = crashed(&[6 * GIB], 45 * MIB);
        let record = crashed.dump("2026-11-29T02:31:05Z").unwrap();
        assert_eq!(
            record,
            CrashRecord {
                kernel: "6.12.1-amd64".into(),
                reason: Some("sysrq triggered crash".into()),
                dump_bytes: Some(45 * MIB),
                lacking: None,
                memory_available: Some(2 * MIB),
            }
        );
        let at = "/mnt/lib/nqrust/crash/20261129T023105Z.partial";
        assert_eq!(
            crashed.commands,
            [
                format!("makedumpfile --dump-dmesg /proc/vmcore {at}/dmesg.txt"),
                // A fifth of 10 GiB stays free.
                format!(
                    "prlimit --fsize={} makedumpfile --message-level 4 -l -d 31 /proc/vmcore {at}/vmcore",
                    6 * GIB - 10 * GIB / 100 * 20
                ),
                "umount /mnt".to_owned(),
            ]
        );
        assert_eq!(crashed.names(), ["20261129T023105Z"]);
        let directory = crashed.directory();
        for path in [directory.clone(), directory.join("20261129T023105Z")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let text = fs::read_to_string(directory.join("20261129T023105Z").join(RECORD)).unwrap();
        assert_eq!(serde_json::from_str::<CrashRecord>(&text).unwrap(), record);
    }

    #[test]
    fn there_are_three_dumps_at_most_and_no_incomplete_one() {
        let mut crashed = crashed(&[6 * GIB], MIB);
        for second in 1..=5 {
            crashed.dump(&format!("2026-11-29T02:31:0{second}Z")).unwrap();
            crashed.free = vec![6 * GIB];
            let left = crashed.directory().join("20261101T000000Z.partial");
            fs::create_dir_all(left).unwrap();
        }
        let names = crashed.names();
        assert_eq!(names[1..], ["20261129T023103Z", "20261129T023104Z", "20261129T023105Z"], "{names:?}");
        crashed.dump("2026-11-29T02:31:06Z").unwrap();
        assert_eq!(crashed.names(), ["20261129T023104Z", "20261129T023105Z", "20261129T023106Z"]);
    }

    #[test]
    fn older_dumps_make_room_from_the_oldest_on_and_only_as_far_as_it_takes() {
        let mut crashed = crashed(&[6 * GIB], 300 * MIB);
        for second in 1..=2 {
            crashed.dump(&format!("2026-11-29T02:31:0{second}Z")).unwrap();
            crashed.free = vec![6 * GIB];
        }
        // Of what is free, 100 MiB may be taken; a quarter of the memory is wanted, and is there once the oldest is gone.
        crashed.free = vec![2 * GIB + 100 * MIB, 2 * GIB + 400 * MIB];
        let record = crashed.dump("2026-11-29T02:31:09Z").unwrap();
        assert_eq!(record.dump_bytes, Some(300 * MIB));
        assert_eq!(crashed.names(), ["20261129T023102Z", "20261129T023109Z"]);
    }

    #[test]
    fn without_room_the_messages_are_kept_and_it_is_said_why_there_is_no_dump() {
        // A fifth stays free.
        let mut full = crashed(&[2 * GIB + 10 * MIB], 300 * MIB);
        let record = full.dump("2026-11-29T02:31:05Z").unwrap();
        assert_eq!(record.lacking.as_deref(), Some("2.0 GiB are free, and 20 % of 10 GiB stay free"));
        let directory = full.directory().join("20261129T023105Z");
        assert_eq!(fs::read_to_string(directory.join(MESSAGES)).unwrap(), MESSAGE);
        assert!(!directory.join(DUMP).exists());
        assert!(!full.commands.iter().any(|line| line.starts_with("prlimit")));

        // It turns out to be larger than what is left.
        let mut larger = crashed(&[2 * GIB + 100 * MIB], 300 * MIB);
        let record = larger.dump("2026-11-29T02:31:05Z").unwrap();
        assert!(record.lacking.unwrap().contains("SIGXFSZ"));
        let directory = larger.directory().join("20261129T023105Z");
        assert!(directory.join(MESSAGES).exists() && !directory.join(DUMP).exists());
    }

    #[test]
    fn older_dumps_stay_where_the_partition_is_full_of_other_things() {
        let mut crashed = crashed(&[6 * GIB], MIB);
        crashed.dump("2026-11-29T02:31:01Z").unwrap();
        crashed.free = vec![GIB];
        let record = crashed.dump("2026-11-29T02:31:02Z").unwrap();
        assert!(record.lacking.is_some());
        assert_eq!(crashed.names(), ["20261129T023101Z", "20261129T023102Z"]);
    }

    #[test]
    fn older_dumps_stay_where_the_room_would_not_do_even_without_them() {
        let mut crashed = crashed(&[6 * GIB], 439 * MIB);
        for second in 1..=3 {
            crashed.dump(&format!("2026-11-29T02:31:0{second}Z")).unwrap();
        }
        // 2 GiB have to stay free: two older dumps would free 878 MiB, and less than 32 MiB of them could be used.
        crashed.free = vec![2 * GIB - 850 * MIB];
        let record = crashed.dump("2026-11-29T02:31:09Z").unwrap();
        assert!(record.lacking.unwrap().ends_with("stay free"));
        let directory = crashed.directory();
        let dumps = crashed.names().into_iter().filter(|name| directory.join(name).join(DUMP).exists());
        assert_eq!(dumps.count(), 3);
        // With 32 MiB it helps, but for the newest.
        crashed.free = vec![2 * GIB - 840 * MIB, 2 * GIB - 401 * MIB, 2 * GIB + 38 * MIB];
        crashed.dump_bytes = 38 * MIB;
        assert_eq!(crashed.dump("2026-11-29T02:31:10Z").unwrap().dump_bytes, Some(38 * MIB));
        let dumps = crashed.names().into_iter().filter(|name| directory.join(name).join(DUMP).exists());
        assert_eq!(dumps.collect::<Vec<_>>(), ["20261129T023103Z", "20261129T023110Z"]);
    }

    #[test]
    fn a_node_that_crashes_again_and_again_keeps_its_newest_dump_until_a_newer_one_is_complete() {
        let mut crashed = crashed(&[6 * GIB], 300 * MIB);
        for second in 1..=3 {
            crashed.dump(&format!("2026-11-29T02:31:0{second}Z")).unwrap();
        }
        // There would be room if every older dump were removed; the new one turns out larger than that.
        crashed.free = vec![2 * GIB + 10 * MIB];
        crashed.dump_bytes = 8 * GIB;
        for minute in 10..30 {
            let record = crashed.dump(&format!("2026-11-29T02:{minute}:00Z")).unwrap();
            assert!(record.lacking.is_some() && record.dump_bytes.is_none());
        }
        let directory = crashed.directory();
        let with_dump = |name: &String| directory.join(name).join(DUMP).exists();
        let (dumps, messages): (Vec<_>, Vec<_>) = crashed.names().into_iter().partition(with_dump);
        assert_eq!(dumps, ["20261129T023103Z"]);
        assert_eq!(messages.len(), MESSAGES_MAX);
        assert_eq!(messages.last().map(String::as_str), Some("20261129T022900Z"), "{messages:?}");
    }

    #[test]
    fn a_dump_whose_clock_goes_wrong_is_neither_lost_nor_in_the_place_of_another() {
        let mut crashed = crashed(&[6 * GIB], MIB);
        for second in 1..=3 {
            crashed.dump(&format!("2026-11-29T02:31:0{second}Z")).unwrap();
        }
        for _ in 0..2 {
            crashed.dump("1970-01-01T00:00:00Z").unwrap();
        }
        assert_eq!(crashed.names(), ["19700101T000001Z", "20261129T023102Z", "20261129T023103Z"]);
    }

    #[test]
    fn what_ends_the_machine_while_it_writes_leaves_the_messages_and_why_there_is_no_dump() {
        let crashed = crashed(&[6 * GIB], MIB);
        let partial = crashed.directory().join("20261129T023105Z.partial");
        let armed = crashed.directory().join(crash_dumps::ARMED);
        fs::create_dir_all(crashed.directory()).unwrap();
        fs::write(&armed, "a start").unwrap();
        let room = |_: &Path| -> Result<FileSystemRoom> {
            let text = fs::read_to_string(partial.join(RECORD)).unwrap();
            let record: CrashRecord = serde_json::from_str(&text).unwrap();
            assert_eq!(record.lacking.as_deref(), Some(INTERRUPTED));
            assert_eq!(record.reason.as_deref(), Some("sysrq triggered crash"));
            assert!(!armed.exists(), "the end is explained");
            anyhow::bail!("looked at")
        };
        let told = |invocation: &Invocation| {
            fs::write(invocation.args.last().unwrap(), MESSAGE)?;
            Ok(Vec::new())
        };
        let runner = ScriptedRunner::silent().reply("--dump-dmesg", told);
        let mount = crashed.root.path().join("mnt");
        let places = DumpPlaces { root: crashed.root.path(), mount: &mount, room: &room };
        let now = "2026-11-29T02:31:05Z".parse().unwrap();
        let record = dump(&places, LINE, &mut Partition, &runner, now).unwrap();
        assert_eq!(record.lacking.as_deref(), Some("looked at"));
    }

    #[test]
    fn a_program_that_is_killed_is_the_reason_for_no_dump_and_the_partition_is_unmounted() {
        let crashed = crashed(&[6 * GIB], MIB);
        let room = |_: &Path| Ok(FileSystemRoom { size: ByteSize::gib(10), free: ByteSize::gib(6) });
        let killed = |invocation: &Invocation| {
            fs::write(invocation.args.last().unwrap(), "half of it")?;
            anyhow::bail!("prlimit ended with signal: 9 (SIGKILL)")
        };
        let runner = ScriptedRunner::silent().reply("prlimit", killed);
        let mount = crashed.root.path().join("mnt");
        let places = DumpPlaces { root: crashed.root.path(), mount: &mount, room: &room };
        let now = "2026-11-29T02:31:05Z".parse().unwrap();
        let record = dump(&places, LINE, &mut Partition, &runner, now).unwrap();
        assert!(record.lacking.unwrap().contains("SIGKILL"));
        assert!(!crashed.directory().join("20261129T023105Z").join(DUMP).exists());
        assert!(runner.commands().last().unwrap().starts_with("umount "));
    }

    #[test]
    fn a_system_that_no_crash_has_started_writes_nothing() {
        let mut crashed = crashed(&[GIB], MIB);
        fs::remove_file(crashed.root.path().join(OLD_MEMORY)).unwrap();
        let error = crashed.dump("2026-11-29T02:31:05Z").unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(!crashed.root.path().join("mnt").exists());
    }

    #[test]
    fn the_reason_is_that_of_the_last_panic() {
        assert_eq!(reason(MESSAGE).as_deref(), Some("sysrq triggered crash"));
        assert_eq!(reason("nothing of that"), None);
        let long = format!("x {PANIC}first\n{PANIC}{}", "a".repeat(900));
        assert_eq!(reason(&long).unwrap().len(), 200);
    }
}
