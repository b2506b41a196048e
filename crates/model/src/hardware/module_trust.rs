//! Whether the kernel of a machine would load the modules of a release that are not of the kernel's own packages.
//!
//! With Secure Boot a kernel loads only modules that a key has signed which it trusts: those that it was built with, and, in Debian 12 and
//! 13, those of the firmware (`db`) and of the machine's owner (`MokListRT`). The modules of its own packages are signed by the former.

use std::collections::BTreeSet;

use base::digest::Digest;

use super::coverage::{CoveredModule, HardwareCoverage};
use super::judge::{HardwareProblem, LostHardware};
use formats::kernel_modules::kernel_name;

/// The keys that a machine trusts for modules beside those of its kernel. A machine that loads unsigned modules too has none of this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleTrust {
    pub signers: BTreeSet<Digest>,
}

/// A device of a machine, with a driver or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentDevice {
    /// Bus and address, such as `pci 0000:3b:00.0`.
    pub name: String,
    /// The kernel's description of it, by which drivers are found.
    pub modalias: String,
}

impl ModuleTrust {
    fn refuses(&self, module: &CoveredModule) -> bool {
        module
            .outside
            .is_some_and(|outside| outside.signer.is_none_or(|signer| !self.signers.contains(&signer)))
    }

    /// What a machine with these devices would lack under the release that has `coverage`, because its kernel would refuse modules.
    /// `named` are the modules that the configuration loads.
    #[must_use]
    pub fn refused(
        &self,
        devices: &[PresentDevice],
        named: &[String],
        coverage: &HardwareCoverage,
    ) -> Vec<LostHardware> {
        let refused: Vec<_> = coverage.modules.iter().filter(|module| self.refuses(module)).collect();
        if refused.is_empty() {
            return Vec::new();
        }
        let lost = |subject: String, module: &CoveredModule| LostHardware {
            subject,
            used_by: Vec::new(),
            problem: HardwareProblem::RefusedModule {
                module: module.name.clone(),
                signed: module.outside.is_some_and(|outside| outside.signer.is_some()),
            },
        };
        let of_devices = devices.iter().filter_map(|device| {
            let mut drivers = coverage.drivers(&device.modalias);
            let first = drivers.next()?;
            let all_refused = self.refuses(first) && drivers.all(|driver| self.refuses(driver));
            all_refused.then(|| lost(device.name.clone(), first))
        });
        let is_named = |module: &CoveredModule| named.iter().any(|name| kernel_name(name) == module.name);
        let is_loaded = |module: &CoveredModule| module.outside.is_some_and(|outside| outside.loaded);
        let of_release = refused.iter().filter_map(|module| match (is_named(module), is_loaded(module)) {
            (true, _) => Some(lost("os.modules".to_owned(), module)),
            (false, true) => Some(lost("the release".to_owned(), module)),
            (false, false) => None,
        });
        of_devices.chain(of_release).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::coverage::OutsideModule;

    fn module(name: &str, alias: &str, outside: Option<OutsideModule>) -> CoveredModule {
        CoveredModule {
            name: name.into(),
            aliases: [alias.to_owned()].into(),
            outside,
            ..CoveredModule::default()
        }
    }

    fn coverage(modules: Vec<CoveredModule>) -> HardwareCoverage {
        HardwareCoverage { kernel: "6.12".into(), modules, ..HardwareCoverage::default() }
    }

    fn told(
        trust: &ModuleTrust,
        devices: &[&str],
        named: &[&str],
        modules: Vec<CoveredModule>,
    ) -> Vec<String> {
        let device =
            |alias: &&str| PresentDevice { name: "pci 0000:3b:00.0".into(), modalias: (*alias).into() };
        let devices: Vec<_> = devices.iter().map(device).collect();
        let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
        trust.refused(&devices, &named, &coverage(modules)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_that_a_device_needs_has_to_be_signed_by_a_key_that_the_machine_knows() {
        let signer = Digest::of(b"a key");
        let unsigned = || module("acme", "pci:v0000ACE0*", Some(OutsideModule::default()));
        let signed = || {
            let outside = OutsideModule { signer: Some(signer), ..OutsideModule::default() };
            module("acme", "pci:v0000ACE0*", Some(outside))
        };
        let device = ["pci:v0000ACE0d1"];
        let (none, known) = (ModuleTrust::default(), ModuleTrust { signers: [signer].into() });
        for trust in [&none, &known] {
            assert_eq!(
                told(trust, &device, &[], vec![unsigned()]),
                [
                    "pci 0000:3b:00.0 needs the module acme, which is not signed, and with Secure Boot the kernel would refuse it"
                ]
            );
        }
        assert_eq!(
            told(&none, &device, &[], vec![signed()]),
            [
                "pci 0000:3b:00.0 needs the module acme, which is signed by a key that this machine does not trust, and with \
              Secure Boot the kernel would refuse it"
            ]
        );
        assert!(told(&known, &device, &[], vec![signed()]).is_empty());
        // No such device, or another driver for it.
        assert!(told(&none, &["pci:v00008086d1"], &[], vec![signed()]).is_empty());
        let own = module("own", "pci:v0000ACE0*", None);
        assert!(told(&none, &device, &[], vec![own, signed()]).is_empty());
    }

    #[test]
    fn a_module_that_is_loaded_by_name_is_needed_too() {
        let loaded = module("acme_tool", "x", Some(OutsideModule { loaded: true, signer: None }));
        let text = |subject: &str| {
            format!(
                "{subject} needs the module acme_tool, which is not signed, and with Secure Boot the kernel would refuse it"
            )
        };
        let trust = ModuleTrust::default();
        assert_eq!(told(&trust, &[], &[], vec![loaded.clone()]), [text("the release")]);
        let idle = module("acme_tool", "x", Some(OutsideModule::default()));
        assert!(told(&trust, &[], &["other"], vec![idle.clone()]).is_empty());
        assert_eq!(told(&trust, &[], &["acme-tool"], vec![idle]), [text("os.modules")]);
    }
}
