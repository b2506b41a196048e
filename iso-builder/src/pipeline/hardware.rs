//! `hardware.json`: what the OS image can drive, with what the initrd has of it.

use std::fs::{self, File};
use std::io::Seek;
use std::path::Path;

use anyhow::{Context, Result};
use formats::initrd;
use formats::kernel_modules::{is_module, name_of};
use model::hardware::coverage::INITRD_DUMP_PROGRAM;
use model::hardware::{CoveredModule, HardwareCoverage};
use model::release::HARDWARE;

use crate::product;

/// Makes [`HARDWARE`] in `out`; nothing if the kernel has no modules.
pub(super) fn complete(coverage: &Path, initrd: &Path, out: &Path) -> Result<()> {
    let what = || format!("reading {}", coverage.display());
    let mut coverage = HardwareCoverage::parse(&fs::read(coverage).with_context(what)?).with_context(what)?;
    if coverage.modules.is_empty() {
        return Ok(());
    }
    let what = || format!("listing the modules of {}", initrd.display());
    let mut archives = tempfile::tempfile_in(out).with_context(what)?;
    initrd::unpack(&mut File::open(initrd).with_context(what)?, &mut archives).with_context(what)?;
    archives.rewind().with_context(what)?;
    let entries = initrd::entries(&mut archives).with_context(what)?;
    coverage.multipath = product::INITRD_MULTIPATH.iter().all(|path| entries.contains_key(*path));
    coverage.crash_dumps = entries.contains_key(INITRD_DUMP_PROGRAM);
    let has = |paths: &[&str]| paths.iter().all(|path| entries.contains_key(*path));
    let network_disks = has(&product::INITRD_NETWORK_DISKS);
    coverage.iscsi = network_disks && has(&product::INITRD_ISCSI);
    for path in entries.keys().filter(|path| is_module(path)) {
        let name = name_of(Path::new(path));
        if let Ok(at) = coverage.modules.binary_search_by(|module| module.name.cmp(&name)) {
            coverage.modules[at].initrd = true;
        }
    }
    let nvme_tcp = coverage.module(product::INITRD_NVME_TCP).is_some_and(CoveredModule::is_early);
    coverage.nvme_tcp = network_disks && nvme_tcp;
    let file = out.join(HARDWARE);
    fs::write(&file, coverage.to_bytes()).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use base::digest::Digest;
    use formats::initrd::{ArchivedFile, archive};
    use model::release::MANIFEST;
    use testing::servers::{KERNELS, KernelExtract, RecordedServer, SERVERS, write_inventories};

    use super::*;
    use crate::media::finished::machines::{CoveredRelease, FitVerdict, MachineFit};
    use crate::steps;

    fn made(modules: &[&str], further: &[&'static str]) -> Option<HardwareCoverage> {
        let module = |name: &&str| CoveredModule { name: (*name).into(), ..CoveredModule::default() };
        let coverage = HardwareCoverage {
            kernel: "6.12.1".into(),
            modules: modules.iter().map(module).collect(),
            ..HardwareCoverage::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("coverage"), coverage.to_bytes()).unwrap();
        let file = |path| ArchivedFile { path, content: b"x", executable: false };
        let mut files = vec![
            file("usr/lib/modules/6.12.1/kernel/virtio-net.ko"),
            file("usr/lib/modules/6.12.1/modules.dep"),
            file("usr/lib/modules/6.12.1/kernel/unknown.ko"),
        ];
        files.extend(further.iter().map(|path| file(path)));
        let plain = archive(&files);
        let mut packed = Vec::new();
        initrd::pack(&mut std::io::Cursor::new(plain), &mut packed).unwrap();
        fs::write(at("initrd"), packed).unwrap();
        complete(&at("coverage"), &at("initrd"), directory.path()).unwrap();
        fs::read(at(HARDWARE)).ok().map(|bytes| HardwareCoverage::parse(&bytes).unwrap())
    }

    #[test]
    fn the_modules_of_the_initrd_are_told_and_a_kernel_without_modules_has_no_list() {
        let coverage = made(&["bnx2x", "virtio_net"], &[]).unwrap();
        assert_eq!(coverage.modules.iter().map(|module| module.initrd).collect::<Vec<_>>(), [false, true]);
        assert_eq!(made(&[], &[]), None);
    }

    /// The reasons for which each of the recorded servers would not come up under `kernel`, by the parts of a build from its modules to the
    /// answers of `iso-builder check`.
    fn judged(kernel: KernelExtract, has_firmware: bool) -> Vec<MachineFit> {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mut coverage = steps::coverage_of(kernel.release(), |root| kernel.lay_out(root));
        assert!(!coverage.firmware.is_empty());
        if !has_firmware {
            coverage.firmware.clear();
        }
        fs::write(at("coverage"), coverage.to_bytes()).unwrap();
        let names: Vec<_> =
            kernel.early().iter().map(|name| format!("usr/lib/modules/x/{name}.ko")).collect();
        let modules: Vec<_> =
            names.iter().map(|path| ArchivedFile { path, content: b"x", executable: false }).collect();
        let mut packed = Vec::new();
        initrd::pack(&mut std::io::Cursor::new(archive(&modules)), &mut packed).unwrap();
        fs::write(at("initrd"), packed).unwrap();
        complete(&at("coverage"), &at("initrd"), place.path()).unwrap();
        let bytes = fs::read(at(HARDWARE)).unwrap();
        let mut release = testing::iso::release_with_hardware();
        let payload = release.iso.as_mut().unwrap().hardware.as_mut().unwrap();
        (payload.size, payload.sha256) = (bytes.len() as u64, Digest::of(&bytes));
        fs::write(at(MANIFEST), release.to_bytes()).unwrap();
        let fleet = at("fleet");
        fs::create_dir(&fleet).unwrap();
        write_inventories(&fleet);
        CoveredRelease::read(place.path()).unwrap().judge_all(&fleet).unwrap()
    }

    /// Compares answers with what is known of each server.
    fn compare(what: &str, fits: &[MachineFit], known: impl Fn(&RecordedServer) -> &'static [&'static str]) {
        let told: Vec<_> = fits.iter().map(|fit| (fit.machine.as_str(), fit.reasons.clone())).collect();
        let known: Vec<_> = SERVERS
            .iter()
            .map(|server| (server.name, known(server).iter().map(|why| (*why).to_owned()).collect()))
            .collect::<Vec<(_, Vec<String>)>>();
        assert_eq!(told, known, "{what}");
        for fit in fits {
            assert_eq!(fit.verdict == FitVerdict::Ok, fit.reasons.is_empty(), "{what}: {}", fit.machine);
        }
    }

    #[test]
    fn of_recorded_servers_those_come_up_that_the_kernel_and_its_firmware_are_known_to_drive() {
        for (number, kernel) in KERNELS.into_iter().enumerate() {
            compare(kernel.release(), &judged(kernel, true), |server| server.reasons[number]);
        }
        compare("without firmware", &judged(KERNELS[1], false), |server| server.without_firmware);
    }

    #[test]
    fn a_node_can_be_on_a_disk_with_several_paths_if_the_initrd_has_multipathd_and_its_rules() {
        let can = |files: &[&'static str]| made(&["bnx2x"], files).unwrap().multipath;
        assert!(can(&product::INITRD_MULTIPATH));
        assert!(!can(&product::INITRD_MULTIPATH[1..]) && !can(&[]));
    }

    #[test]
    fn a_node_can_be_on_an_iscsi_disk_if_the_initrd_has_open_iscsi_networkd_and_our_unit() {
        let can = |files: &[&'static str]| made(&["bnx2x"], files).unwrap().iscsi;
        let all = [product::INITRD_NETWORK_DISKS, product::INITRD_ISCSI].concat();
        assert!(can(&all) && !can(&[]));
        for (at, _) in all.iter().enumerate() {
            let mut files = all.clone();
            files.remove(at);
            assert!(!can(&files));
        }
    }

    #[test]
    fn a_node_can_be_on_a_disk_by_nvme_over_tcp_if_the_initrd_has_the_module_networkd_and_our_unit() {
        let module = "usr/lib/modules/6.12.1/kernel/nvme-tcp.ko";
        let can = |modules: &[&str], files: &[&'static str]| made(modules, files).unwrap().nvme_tcp;
        let [networkd, unit] = product::INITRD_NETWORK_DISKS;
        assert!(can(&["bnx2x", "nvme_tcp"], &[networkd, unit, module]));
        for files in [[networkd, unit].as_slice(), &[networkd, module], &[unit, module]] {
            assert!(!can(&["bnx2x", "nvme_tcp"], files), "{files:?}");
        }
        assert!(!can(&["bnx2x"], &[networkd, unit, module]));
    }
}
