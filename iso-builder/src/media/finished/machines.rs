//! Which machines would come up with a release: the documents of `installer inventory` against what the release can drive.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::read_at_most;
use medium::build_output::BuildOutput;
use medium::reader::MediumReader;
use model::architecture::Architecture;
use model::hardware::coverage::LARGEST;
use model::hardware::{
    CoveredModule, HardwareCoverage, HardwareInUse, NamedModules, UnboundDevice, UnboundKind, judge,
};
use model::release::Release;
use serde::{Deserialize, Serialize};

const MAX_INVENTORY: u64 = 16 << 20;

/// What is read of an inventory.
#[derive(Debug, Deserialize)]
struct MachineInventory {
    architecture: Option<Architecture>,
    disks: Vec<InventoryDisk>,
    nics: Vec<serde::de::IgnoredAny>,
    hardware: Option<HardwareInUse>,
}

#[derive(Debug, Deserialize)]
struct InventoryDisk {
    name: String,
}

/// Whether a machine would come up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineFit {
    /// The name of its inventory without `.json`.
    pub machine: String,
    pub verdict: FitVerdict,
    /// Why not, or why that is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FitVerdict {
    Ok,
    /// Something that works now would not.
    Lost,
    /// The inventory does not say which drivers the machine has.
    Unknown,
}

/// The release of a medium with what it can drive.
#[derive(Debug)]
pub struct CoveredRelease {
    pub release: Release,
    coverage: HardwareCoverage,
}

impl CoveredRelease {
    /// Reads the medium at `path`: an ISO, the directory of a build, a directory with the content of an ISO, or a URL.
    ///
    /// # Errors
    /// [`Class::Invalid`] if it does not say what it can drive, [`Class::Verification`] if it is damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let iso = BuildOutput::open(path)?.and_then(|output| output.iso());
        let medium = MediumReader::open(iso.as_deref().unwrap_or(path))?;
        let release = medium.release()?;
        let Some(payload) = release.hardware() else {
            let what = format!("{} does not say what it can drive", path.display());
            return Err(Failure::new(Class::Invalid, what)
                .hint("Build it again with this version of iso-builder.")
                .into());
        };
        let what = || format!("reading {} of {}", payload.path, path.display());
        let mut bytes = Vec::new();
        let length = payload.size.min(LARGEST) + 1;
        medium.open_payload(payload)?.take(length).read_to_end(&mut bytes).class(Class::DiskIo, what)?;
        if Digest::of(&bytes) != payload.sha256 {
            let why = anyhow::anyhow!("its SHA-256 is not that of the release manifest");
            return Err(Failure::new(Class::Verification, what()).because(why).into());
        }
        let coverage = HardwareCoverage::parse(&bytes).class(Class::Verification, what)?;
        Ok(Self { release, coverage })
    }

    /// Judges the machine of each inventory (`*.json`) in `directory`, by name.
    ///
    /// # Errors
    /// [`Class::Invalid`] if the directory has none. A file that is no inventory says nothing of its machine, and of no other.
    pub fn judge_all(&self, directory: &Path) -> Result<Vec<MachineFit>> {
        let what = || format!("reading the inventories in {}", directory.display());
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(directory).class(Class::Invalid, what)? {
            let path = entry.class(Class::DiskIo, what)?.path();
            if path.extension() == Some(OsStr::new("json")) {
                files.push(path);
            }
        }
        if files.is_empty() {
            let why = anyhow::anyhow!("it has no file with a name that ends in .json");
            let hint = "Put the output of `installer inventory` of each machine there, as NAME.json.";
            return Err(Failure::new(Class::Invalid, what()).because(why).hint(hint).into());
        }
        files.sort();
        Ok(files.iter().map(|file| self.judge_file(file)).collect())
    }

    fn judge_file(&self, file: &Path) -> MachineFit {
        let read = || -> Result<MachineInventory> {
            Ok(serde_json::from_slice(&read_at_most(file, MAX_INVENTORY)?)?)
        };
        let machine = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (verdict, reasons) = match read() {
            Ok(inventory) => self.judge(inventory),
            Err(error) => {
                let why = format!("{} is no output of `installer inventory`: {error:#}", file.display());
                (FitVerdict::Unknown, vec![why])
            }
        };
        MachineFit { machine, verdict, reasons }
    }

    fn judge(&self, inventory: MachineInventory) -> (FitVerdict, Vec<String>) {
        let MachineInventory { architecture, disks, nics, hardware } = inventory;
        if let Some(other) = architecture.filter(|architecture| *architecture != self.release.architecture) {
            let reason = format!("the machine is {other}, the release is for {}", self.release.architecture);
            return (FitVerdict::Lost, vec![reason]);
        }
        let unbound = hardware.as_ref().map(|hardware| hardware.unbound.as_slice()).unwrap_or_default();
        let mut lost = Vec::new();
        let mut need = |is_missing: bool, kind| {
            lost.extend(is_missing.then(|| self.missing(kind, unbound)).flatten());
        };
        need(disks.is_empty(), UnboundKind::DiskController);
        need(nics.is_empty(), UnboundKind::NetworkCard);
        let Some(mut hardware) = hardware else {
            let why = "its inventory does not say which drivers it has: make it again with this version of `installer inventory`";
            let verdict = if lost.is_empty() { FitVerdict::Unknown } else { FitVerdict::Lost };
            lost.push(why.to_owned());
            return (verdict, lost);
        };
        // On a machine without a system, every disk may be the one of the system.
        if !hardware.devices.iter().any(|device| device.early) {
            for device in &mut hardware.devices {
                device.early = disks.iter().any(|disk| device.used_by.contains(&disk.name));
            }
        }
        let named =
            NamedModules { arguments: self.release.kernel_arguments.clone(), ..NamedModules::default() };
        lost.extend(judge(&hardware, &named, &self.coverage).iter().map(ToString::to_string));
        (if lost.is_empty() { FitVerdict::Ok } else { FitVerdict::Lost }, lost)
    }

    /// Why a machine that has no disk, or no network card, would not get one either from what has no driver now; none if it would.
    fn missing(&self, kind: UnboundKind, unbound: &[UnboundDevice]) -> Option<String> {
        let what = match kind {
            UnboundKind::NetworkCard => "network card",
            UnboundKind::DiskController => "disk",
        };
        let devices: Vec<_> = unbound.iter().filter(|device| device.kind == kind).collect();
        let problems: Option<Vec<_>> = devices.iter().map(|device| self.undriven(device)).collect();
        match problems?.as_slice() {
            [] => Some(format!("it has no {what}")),
            problems => Some(format!("it has no {what} with a driver: {}", problems.join(", "))),
        }
    }

    /// Why a device that has no driver now would not work; none if it would. Of its firmware one file has to be there.
    fn undriven(&self, device: &UnboundDevice) -> Option<String> {
        let drivers: Vec<_> = self.coverage.drivers(&device.modalias).collect();
        let Some(first) = drivers.first() else {
            return Some(format!("{device} has none now and would have none"));
        };
        // The system may be on any disk.
        let early = |driver: &&&CoveredModule| device.kind == UnboundKind::NetworkCard || driver.is_early();
        let Some(driver) = drivers.iter().find(early) else {
            let name = &first.name;
            return Some(format!("{device} has none now, and the initrd would lack its driver {name}"));
        };
        let lacks = !driver.firmware.is_empty() && driver.firmware.is_disjoint(&self.coverage.firmware);
        lacks.then(|| format!("{device} has none now, and its driver {} would lack firmware", driver.name))
    }
}

/// The machines as a table of names, verdicts and reasons.
#[must_use]
pub fn table(machines: &[MachineFit]) -> String {
    let width = machines.iter().map(|one| one.machine.chars().count()).max().unwrap_or_default();
    let line = |one: &MachineFit| {
        let verdict = match one.verdict {
            FitVerdict::Ok => "ok",
            FitVerdict::Lost => "no",
            FitVerdict::Unknown => "unknown",
        };
        let line = format!("{:width$}  {verdict:<7}  {}", one.machine, one.reasons.join("; "));
        line.trim_end().to_owned()
    };
    machines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use base::failure::class_of;
    use testing::iso::{image, release, release_with_hardware};

    use super::*;

    fn iso(directory: &Path, release: &Release) -> PathBuf {
        let path = directory.join("release.iso");
        fs::write(&path, image(release)).unwrap();
        path
    }

    #[test]
    fn every_machine_of_a_directory_is_judged_by_its_inventory() {
        let directory = tempfile::tempdir().unwrap();
        let covered = CoveredRelease::read(&iso(directory.path(), &release_with_hardware())).unwrap();
        let inventories = directory.path().join("fleet");
        fs::create_dir(&inventories).unwrap();
        assert_eq!(class_of(&covered.judge_all(&inventories).unwrap_err()), Class::Invalid);
        let device = |modalias: &str, module: &str, user: &str| {
            format!(
                r#"{{"bus":"pci","address":"0000:00:1f.2","modalias":"{modalias}","driver":"{module}","module":"{module}","claimed":true,"used_by":["{user}"]}}"#
            )
        };
        let document = |devices: &str| {
            format!(
                r#"{{"architecture":"amd64","disks":[{{"name":"sda"}}],"nics":[{{"name":"ens3"}}],"hardware":{{"kernel":"6.1.0","devices":[{devices}],"cards":[]}}}}"#
            )
        };
        let ahci = device("pci:v00008086d00002922sv0sd0bc01sc06i01", "ahci", "sda");
        let raid = device("pci:v00001000d0000005Dsv0sd0bc01sc04i00", "megaraid_sas", "sda");
        let write = |name: &str, text: &str| fs::write(inventories.join(name), text).unwrap();
        write("a.json", &document(&ahci));
        write("b.json", &document(&raid));
        write("c.json", r#"{"disks":[{"name":"sda"}],"nics":[{}]}"#);
        write("d.json", r#"{"architecture":"arm64","disks":[],"nics":[]}"#);
        write("e.json", r#"{"disks":[],"nics":[],"hardware":{"kernel":"1","devices":[],"cards":[]}}"#);
        write("notes.txt", "no inventory");
        let fits = covered.judge_all(&inventories).unwrap();
        assert_eq!(
            table(&fits),
            "a  ok\n\
             b  no       pci 0000:00:1f.2 (sda) has the driver megaraid_sas now and would have none\n\
             c  unknown  its inventory does not say which drivers it has: make it again with this version of `installer inventory`\n\
             d  no       the machine is arm64, the release is for amd64\n\
             e  no       it has no disk; it has no network card"
        );
        assert_eq!(serde_json::to_string(&fits[0]).unwrap(), r#"{"machine":"a","verdict":"ok"}"#);
        // Nor is a card missing that the release has a driver for.
        let unbound = |modalias: &str| {
            let card =
                format!(r#"{{"address":"0000:31:00.0","kind":"network-card","modalias":"{modalias}"}}"#);
            let text = document(&ahci).replace(r#"[{"name":"ens3"}]"#, "[]");
            text.replace(r#""cards":[]"#, &format!(r#""cards":[],"unbound":[{card}]"#))
        };
        write("g.json", &unbound("pci:v00008086d000057B1sv0sd0bc02sc00i00"));
        write("h.json", &unbound("virtio:d00000001v00001AF4"));
        let fits = covered.judge_all(&inventories).unwrap();
        assert_eq!(
            table(&fits[5..]),
            "g  no       it has no network card with a driver: pci 0000:31:00.0 (8086:57b1) has none now and would have none\n\
             h  ok"
        );
        for name in ["g.json", "h.json"] {
            fs::remove_file(inventories.join(name)).unwrap();
        }
        // One that was not written to its end says nothing of the others.
        write("f.json", r#"{"disks":[{"name""#);
        let fits = covered.judge_all(&inventories).unwrap();
        assert_eq!(fits.len(), 6);
        let told = table(&fits[5..]);
        assert!(told.starts_with("f  unknown  ") && told.contains("f.json is no output of"), "{told}");
    }

    #[test]
    fn a_medium_that_says_nothing_of_hardware_or_is_damaged_judges_no_machine() {
        let directory = tempfile::tempdir().unwrap();
        let error = CoveredRelease::read(&iso(directory.path(), &release())).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let path = iso(directory.path(), &release_with_hardware());
        let mut bytes = fs::read(&path).unwrap();
        let place = testing::iso::find(&bytes, r#""systemd":257"#);
        bytes[place + 12] = b'8';
        fs::write(&path, bytes).unwrap();
        assert_eq!(class_of(&CoveredRelease::read(&path).unwrap_err()), Class::Verification);
    }
}
