//! Disks that fail, lose written data, are shorter than they say, or slow: at every step of an install.

use nix::libc::{EACCES, EIO, ENOSPC, ENXIO};

use nqrust_checker::Verdict;
use nqrust_checker::crash::Entry;

use super::crash::{Crash, verdict};
use super::doubles::Fault;
use super::*;
use crate::plan::SlotGeometry;
use base::failure::{class_of, render};
use model::release::Purpose;

/// The number of requests of each kind that fail in turn, spread over the install; with `NQRUST_FAULTS=all` all of them.
const SPREAD: usize = 12;

/// The numbers of the requests to try, of `count`: the first and the last ones, and some between.
fn some(count: usize) -> Vec<usize> {
    let step = match std::env::var_os("NQRUST_FAULTS") {
        Some(_) => 1,
        None => count.div_ceil(SPREAD),
    };
    let ends = (0..count.min(3)).chain(count.saturating_sub(4)..count);
    let mut all: Vec<_> = (0..count).step_by(step).chain(ends).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// How many reads, writes and flushes an install makes.
fn counts() -> [usize; 3] {
    let bench = Bench::new();
    bench.run().unwrap();
    let disk = &bench.disk;
    [&disk.reads, &disk.writes, &disk.flushes].map(|count| count.load(Ordering::Relaxed))
}

#[test]
fn a_request_that_fails_at_any_step_is_disk_io_that_names_disk_and_place_and_never_a_commit() {
    type Make = fn(usize, i32) -> Fault;
    let kinds: [(Make, &str); 3] =
        [(Fault::Read, "reading "), (Fault::Write, "writing "), (Fault::Flush, "flushing the cache of ")];
    let advice =
        [(EIO, "SMART"), (ENXIO, "disappeared"), (EACCES, "write protection"), (ENOSPC, "Replace it")];
    for ((make, told), count) in kinds.into_iter().zip(counts()) {
        assert!(count > 10, "{told}: {count}");
        for (number, (errno, hint)) in some(count).into_iter().zip(advice.into_iter().cycle()) {
            let mut bench = Bench::new();
            let fault = make(number, errno);
            bench.disk.fault = Some(fault);
            let (class, text) = bench.fail();
            assert_eq!(class, Class::DiskIo, "{fault:?}: {text}");
            let said = std::io::Error::from_raw_os_error(errno).to_string();
            assert!(text.contains(told) && text.contains(hint), "{fault:?}: {text}");
            assert!(text.contains("serial serial-vda") && text.contains(&said), "{fault:?}: {text}");
            assert!(told.contains("cache") || text.contains(" at byte "), "{fault:?}: {text}");
        }
    }
}

#[test]
fn a_commit_that_cannot_be_trusted_is_taken_back() {
    let [reads, _, flushes] = counts();
    for fault in [Fault::Read(reads - 1, EIO), Fault::Flush(flushes - 1, EIO)] {
        let mut bench = Bench::new();
        bench.disk.fault = Some(fault);
        let (class, text) = bench.fail();
        assert!(class == Class::DiskIo && text.contains("step commit"), "{fault:?}: {text}");
        let esp = bench.partition(PartitionName::Esp);
        assert!(bench.disk.bytes(esp, 512).iter().all(|byte| *byte == 0), "{fault:?}");
    }
}

/// The writes whose loss must be noticed: the last ones to the boot sector, the second table, GRUB's core, the EFI system partition
/// (the commit) and the hash tree of the OS image, and those with the kernels of both slots.
fn that_matter(crash: &Crash) -> Vec<usize> {
    let recording = crash.disk.recording.as_ref().unwrap().lock().unwrap();
    let writes = recording.entries.iter().filter_map(|entry| match entry {
        Entry::Write { offset, length, .. } => Some(*offset..*offset + *length),
        Entry::Flush => None,
    });
    let writes: Vec<_> = writes.collect();
    let part = |name| crash.bench.plan.partition(name).unwrap();
    let whole = |name| part(name).start.get()..part(name).end().get();
    let root = part(PartitionName::RootA);
    let image = root.start.get()..SlotGeometry::of(root).boot.get();
    let end = crash.disk.size().get();
    let places =
        [0..1 << 20, end - (1 << 20)..end, whole(PartitionName::Bios), whole(PartitionName::Esp), image];
    let kernel = &contents().iter().find(|(payload, _)| payload.purpose == Purpose::Kernel).unwrap().1;
    let kernels = [PartitionName::RootA, PartitionName::Recovery].map(|name| {
        let place = recording.place_of(&kernel[..200], part(name));
        writes.iter().rposition(|write| write.contains(&place)).unwrap()
    });
    let last = places.map(|place| writes.iter().rposition(|write| place.contains(&write.start)).unwrap());
    last.into_iter().chain(kernels).collect()
}

#[test]
fn a_write_that_vanishes_or_is_torn_is_found_or_did_not_matter() {
    let whole = Crash::new(512, |_, _| {});
    whole.install().unwrap();
    let (matter, writes) = (that_matter(&whole), whole.disk.writes.load(Ordering::Relaxed));
    let torn = some(writes).into_iter().map(Fault::Tear);
    for fault in matter.iter().copied().map(Fault::Vanish).chain(torn) {
        let crash = Crash::new(512, |_, disk| disk.fault = Some(fault));
        match crash.install() {
            // Zeros on zeros, or blocks of a file system that are not in use.
            Ok(()) => {
                assert!(!matches!(fault, Fault::Vanish(_)), "{fault:?} of {writes} is not found");
                assert_eq!(verdict(&crash), Verdict::Complete, "{fault:?} of {writes}");
            }
            Err(error) => {
                let text = render(&error);
                assert_eq!(class_of(&error), Class::DiskIo, "{text}");
                assert_eq!(verdict(&crash), Verdict::NotBootable, "{fault:?} of {writes}: {text}");
                assert!(text.contains("serial serial-vda"), "{text}");
            }
        }
    }
}

#[test]
fn a_slow_disk_is_installed_on_all_the_same() {
    let mut bench = Bench::new();
    bench.disk.fault = Some(Fault::Slow(2));
    bench.run().unwrap();
    assert!(bench.disk.committed());
}
