//! The script of the boot loader and [`decide`], its model, compared in GRUB itself: one machine goes through thousands of
//! environment blocks, reading and writing each with GRUB's own commands. Only the kernels are left out: the function that
//! starts a slot is replaced by one that says whether it can be loaded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::size::ByteSize;
use formats::fat::{FatFile, FatKind, FatVolume, MINIMUM, write_volume};
use install::plan::LOADER_SCRIPT;
use model::boot::Slot;
use model::boot::loader::{LoaderDecision, decide};
use model::boot::record::{BLOCK_BYTES, BootFailureWord, BootRecord, MISSES, SlotState, TRIES, UpdateSlot};
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::steps;
use testing::numbers::Numbers;

/// The number of cases of one machine; GRUB becomes slower with each.
const PER_MACHINE: usize = 2000;
const LIMIT: Duration = Duration::from_secs(300);
/// GRUB searches directories of FAT from their beginning.
const PER_DIRECTORY: usize = 64;

/// The functions of the script that start something or wait, for the tests, and one that runs a case and tells what came
/// of it.
const HARNESS: &str = r#"
function nq_boot {
  for nq_loaded in $nq_loads; do
    if [ $nq_loaded = $1 ]; then return 0; fi
  done
  return 1
}
function nq_wait {
  if [ $nq_waited = 0 ]; then set nq_waited=1; else set nq_waited=2; set nq_loads="a b recovery"; fi
}
function nq_case {
  set nq_env=$1; set nq_loads="$2"; set nq_waited=0
  nq_start
  echo "=$1 slot=$nq_slot trial=$nq_trial waited=$nq_waited="
}
"#;

#[test]
fn grub_decides_as_the_model_of_it_for_a_sample_of_records_and_for_damaged_ones() {
    scenario("loader", |artifacts| {
        let mut cases = Cases::default();
        cases.damaged(150);
        cases.records(records().step_by(13));
        cases.compare(artifacts)
    });
}

#[test]
#[ignore = "minutes: every record that there can be"]
fn grub_decides_as_the_model_of_it_for_every_record() {
    scenario("loader-all", |artifacts| {
        let mut cases = Cases::default();
        cases.damaged(1000);
        cases.records(records());
        cases.compare(artifacts)
    });
}

struct Case {
    /// None where the file is missing.
    block: Option<Vec<u8>>,
    loads: Vec<Slot>,
    /// True if the block is on a disk that can be written.
    saving: bool,
}

impl Case {
    fn decision(&self) -> LoaderDecision {
        decide(self.block.as_deref().unwrap_or_default(), |slot| self.loads.contains(&slot), self.saving)
    }

    fn path(&self, index: usize) -> String {
        format!("{}/{index}", if self.block.is_some() { index / PER_DIRECTORY } else { 999_999 })
    }

    /// The expected output of the harness.
    fn expected(&self) -> String {
        match self.decision().start {
            Some(start) => format!(
                "slot={} trial={} waited={}",
                start.slot,
                if start.trial { "yes" } else { "" },
                u8::from(start.waited)
            ),
            None => "waited=2".to_owned(),
        }
    }
}

/// All combinations of the values that a record can have.
fn records() -> impl Iterator<Item = BootRecord> {
    let slots = || [None, Some(Slot::A), Some(Slot::B), Some(Slot::Recovery)].into_iter();
    let states = || SlotState::ALL.into_iter();
    let pairs = move || states().flat_map(move |a| states().map(move |b| (a, b)));
    let counters = || (0..=TRIES).flat_map(|left| (0..=MISSES).map(move |miss| (left, miss)));
    let named = move || slots().flat_map(move |run| slots().map(move |once| (run, once)));
    UpdateSlot::BOTH.into_iter().flat_map(move |order| {
        pairs().flat_map(move |(a, b)| {
            counters().flat_map(move |(left, miss)| {
                named().map(move |(run, once)| {
                    let generation = u32::from(left) * 1000 + u32::from(miss);
                    BootRecord {
                        generation,
                        order,
                        a,
                        b,
                        left,
                        run,
                        miss,
                        once,
                        why: BootFailureWord::new("health"),
                    }
                })
            })
        })
    })
}

struct Cases {
    all: Vec<Case>,
    numbers: Numbers,
}

impl Default for Cases {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: Numbers(0x6e71_7275_7374) }
    }
}

impl Cases {
    fn push(&mut self, block: Option<Vec<u8>>, saving: bool) {
        // Mostly all slots can be loaded: then the record alone decides.
        let loads = match self.numbers.below(12) {
            subset @ 0..8 => {
                (0..3).filter(|bit| subset & (1 << bit) != 0).map(|bit| Slot::ALL[bit]).collect()
            }
            _ => Slot::ALL.to_vec(),
        };
        self.all.push(Case { block, loads, saving });
    }

    fn records(&mut self, records: impl Iterator<Item = BootRecord>) {
        for (index, record) in records.enumerate() {
            self.push(Some(record.to_block().to_vec()), true);
            if index % 8 == 0 {
                self.push(Some(record.to_block().to_vec()), false);
            }
        }
    }

    /// Blocks that nobody wrote on purpose; `random` of them by chance.
    fn damaged(&mut self, random: usize) {
        let trial = BootRecord { order: UpdateSlot::B, b: SlotState::Try, ..BootRecord::default() };
        let whole = trial.to_block().to_vec();
        self.push(None, true);
        for length in [0, 1, 24, 25, 26, 512, 1023, 1025, 4096] {
            let mut block = whole.clone();
            block.resize(length, b'#');
            self.push(Some(block), true);
            self.push(Some(vec![0; length]), true);
        }
        for zeros in (0..=BLOCK_BYTES).step_by(32) {
            let (mut head, mut tail) = (whole.clone(), whole.clone());
            head[..zeros].fill(0);
            tail[BLOCK_BYTES - zeros..].fill(0);
            self.push(Some(head), true);
            self.push(Some(tail), true);
        }
        let all: Vec<_> = records().step_by(97).collect();
        for _ in 0..random {
            let block = all[self.numbers.below(all.len())].to_block();
            let damaged = self.damage(block.to_vec());
            self.push(Some(damaged), true);
        }
    }

    fn damage(&mut self, mut block: Vec<u8>) -> Vec<u8> {
        let head = b"# GRUB Environment Block\n".len();
        let end = block.iter().rposition(|byte| *byte != b'#').unwrap_or(head);
        let lines: Vec<Vec<u8>> = block[head..end].split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        match self.numbers.below(6) {
            0 => block = self.numbers.bytes(BLOCK_BYTES),
            1 => {
                let noise = self.numbers.bytes(BLOCK_BYTES - head);
                block.splice(head.., noise);
            }
            // Single bytes of the lines.
            2 => {
                for _ in 0..=self.numbers.below(4) {
                    let at = head + self.numbers.below(end - head);
                    block[at] = self.numbers.bytes(1)[0];
                }
            }
            // Lines that come twice, with the value of another line.
            3 => {
                let (line, other) = (self.numbers.below(lines.len()), self.numbers.below(lines.len()));
                let name = lines[line].split(|byte| *byte == b'=').next().unwrap_or_default().to_vec();
                let value = lines[other].splitn(2, |byte| *byte == b'=').nth(1).unwrap_or_default().to_vec();
                let twice = [&name[..], b"=", &value, b"\n"].concat();
                let at = if self.numbers.below(2) == 0 { head } else { end + 1 };
                block.splice(at..at, twice);
                block.truncate(BLOCK_BYTES);
            }
            // Lines that are missing.
            4 => {
                let kept = lines.iter().filter(|_| self.numbers.below(3) > 0);
                let text: Vec<u8> = kept.flat_map(|line| [line, &b"\n"[..]].concat()).collect();
                block.splice(head..=end, text);
                block.resize(BLOCK_BYTES, b'#');
            }
            // A value that is far too long, to the end of the block or beyond what is free.
            _ => {
                let at = head
                    + lines[..self.numbers.below(lines.len())]
                        .iter()
                        .map(|line| line.len() + 1)
                        .sum::<usize>();
                let equals = block[at..].iter().position(|byte| *byte == b'=').unwrap_or_default();
                let long = vec![b'x'; 200 + self.numbers.below(900)];
                block.splice(at + equals + 1..at + equals + 1, long);
                block.truncate(BLOCK_BYTES);
            }
        }
        block
    }

    fn compare(&self, artifacts: &Artifacts) -> Result<()> {
        let parts = self.all.chunks(PER_MACHINE).enumerate();
        parts.map(|(part, cases)| Part { cases, part }).try_for_each(|part| part.compare(artifacts))
    }
}

struct Part<'a> {
    cases: &'a [Case],
    part: usize,
}

impl Part<'_> {
    /// Runs the cases in GRUB, and compares what starts and the blocks afterwards.
    fn compare(&self, artifacts: &Artifacts) -> Result<()> {
        let cd = artifacts.disk(&format!("cd-{}", self.part));
        let disk = artifacts.disk(&format!("blocks-{}.img", self.part));
        self.prepare(&cd, &disk)?;
        let iso = bootable(&cd, artifacts)?;
        let machine = Machine::new("grub", Firmware::Bios).memory(ByteSize::mib(512));
        let mut vm = machine.cdrom(&iso).disk(&Disk::raw(disk.clone())).start(artifacts)?;
        let said = vm.serial.wait_for("=end=", LIMIT)?;
        vm.kill()?;
        let differences = self.differences(&said, &Blocks::open(&disk)?)?;
        artifacts.append("differences", &differences)?;
        ensure!(differences.is_empty(), "of {} cases, these differ:\n{differences}", self.cases.len());
        Ok(())
    }

    /// Writes the script with all cases and those blocks that cannot be written to `cd`, the others to `disk`.
    fn prepare(&self, cd: &Path, disk: &Path) -> Result<()> {
        fs::create_dir_all(cd.join("boot/grub"))?;
        let mut script = format!(
            "serial --unit=0 --speed=115200\nterminal_output serial\nset cd=$root\nset root=hd0\n{LOADER_SCRIPT}{HARNESS}"
        );
        let mut files = Vec::new();
        for (index, case) in self.cases.iter().enumerate() {
            let path = case.path(index);
            let loads: Vec<_> = case.loads.iter().map(Slot::to_string).collect();
            let device = if case.saving { "hd0" } else { "$cd" };
            script.push_str(&format!("nq_case ({device})/{path} \"{}\"\n", loads.join(" ")));
            match &case.block {
                Some(block) if case.saving => files.push((path, block.as_slice())),
                Some(block) => {
                    let path = cd.join(path);
                    fs::create_dir_all(path.parent().context("a directory")?)?;
                    fs::write(path, block)?;
                }
                None => {}
            }
        }
        script.push_str("echo =end=\n");
        fs::write(cd.join("boot/grub/grub.cfg"), script)?;
        write_disk(disk, files)
    }

    fn differences(&self, said: &str, blocks: &Blocks) -> Result<String> {
        let told: BTreeMap<&str, &str> = said
            .lines()
            .filter_map(|line| line.trim().strip_prefix("=(")?.strip_suffix('=')?.split_once(' '))
            .collect();
        let mut differences = String::new();
        for (index, case) in self.cases.iter().enumerate() {
            let path = case.path(index);
            let found = told.iter().find(|(told, _)| told.ends_with(&format!(")/{path}")));
            let found = *found.with_context(|| format!("GRUB said nothing of {path}"))?.1;
            let mut same = found.ends_with(&case.expected());
            let decision = case.decision();
            if case.saving && case.block.is_some() && decision.start.is_some() {
                same &= blocks.read(&path)? == decision.block;
            }
            if !same {
                let block = String::from_utf8_lossy(case.block.as_deref().unwrap_or_default()).into_owned();
                let after = blocks.read(&path).unwrap_or_default();
                differences.push_str(&format!(
                    "{path}: loads {:?}, saving {}: {found}, and not {}\n{block:?}\n{:?}\n{:?}\n",
                    case.loads,
                    case.saving,
                    case.expected(),
                    String::from_utf8_lossy(&after),
                    String::from_utf8_lossy(&decision.block)
                ));
            }
        }
        Ok(differences)
    }
}

/// A FAT volume without a partition table, with these files.
fn write_disk(path: &Path, files: Vec<(String, &[u8])>) -> Result<()> {
    let mut image = File::options().read(true).write(true).create_new(true).open(path)?;
    image.set_len(MINIMUM.get())?;
    let volume = FatVolume { label: "BLOCKS", id: 1, sector: 512, epoch: 0, kind: FatKind::Fat32 };
    let files =
        files.into_iter().map(|(path, block)| FatFile::new(path, Cursor::new(block.to_vec()))).collect();
    write_volume(&mut image, volume, files)
}

/// An ISO of `directory` that BIOS starts, with the GRUB of the medium, which is that of nodes.
fn bootable(directory: &Path, artifacts: &Artifacts) -> Result<std::path::PathBuf> {
    let medium = steps::medium(&Identity::load()?)?;
    let loader = directory.join("boot/grub/eltorito.img");
    programs::xorriso(&medium.full, &["-extract", "/boot/grub/eltorito.img", &loader.display().to_string()])?;
    let iso = artifacts.disk("grub.iso");
    let mut command = std::process::Command::new("xorriso");
    command.args(["-as", "mkisofs", "-quiet", "-R", "-b", "boot/grub/eltorito.img", "-no-emul-boot"]);
    command
        .args(["-boot-load-size", "4", "-boot-info-table", "--grub2-boot-info", "-o"])
        .arg(&iso)
        .arg(directory);
    programs::run(&mut command, Duration::from_secs(60))?.success("xorriso")?;
    Ok(iso)
}

/// The blocks on the disk after GRUB.
struct Blocks(fatfs::FileSystem<File>);

impl Blocks {
    fn open(disk: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(disk)?;
        Ok(Self(fatfs::FileSystem::new(file, fatfs::FsOptions::new())?))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let mut block = Vec::new();
        let mut file = self.0.root_dir().open_file(path).with_context(|| format!("opening {path}"))?;
        file.read_to_end(&mut block)?;
        Ok(block)
    }
}
