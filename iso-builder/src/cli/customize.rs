//! `iso-builder customize`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base::cancellation;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::program::{Context, Format};
use medium::customization::{Content, area, argument};
use medium::iso::recipe::BOOT_MENU;
use medium::reader::MediumReader;
use model::machine::Selector;
use model::release::Purpose;

use super::keys::moment;
use crate::media::customize::change::{self, AreaContents};
use crate::media::customize::{
    Customization, CustomizationLocation, CustomizationSources, GatheredCustomization, copy,
};
use crate::signing::arguments::SigningArguments;
use crate::signing::{ReleaseSigner, SignerOptions, known_keys};

const MAX_DEFAULTS_BYTES: u64 = 1 << 20;
/// The most bytes of a boot menu that are read.
const MAX_MENU_BYTES: u64 = 1 << 20;

/// Put configurations, certificates, kernel arguments and files into a finished medium.
///
/// MEDIUM is an ISO, a stick that one was written to, or the directory of a netboot set. It is changed in place, in moments whatever its size; an earlier customization is replaced. A machine uses the configuration whose --config-for matches it, else that of --config, else the one that the medium was built with. Everything is checked first
/// as `installer validate` does. Afterwards only the file's owner can read it (mode 0600), `iso-builder verify` still checks the whole of it, and --reset restores the exact bytes of the build.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CustomizeCommand {
    /// An ISO, a drive that holds one, a directory with release.json, or the URL of an ISO, of which a copy is made.
    medium: PathBuf,
    /// Write a customized copy of an ISO there and leave MEDIUM as it is; `-` is standard output.
    #[arg(short, long, value_name = "FILE or -", conflicts_with = "show")]
    output: Option<PathBuf>,
    #[command(flatten)]
    configurations: ConfigurationArguments,
    /// Certificates (PEM) of authorities that the installer trusts beside the usual ones. Repeatable.
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// A kernel argument for the installing system, such as console=ttyS1. Repeatable.
    #[arg(long, alias = "argument", alias = "append", value_name = "WORD", allow_hyphen_values = true)]
    kernel_argument: Vec<String>,
    /// A file for the node, with its present permissions: /etc/motd=motd.txt. Repeatable.
    #[arg(long, value_name = "PATH=FILE", value_parser = pair::<String>)]
    file: Vec<(String, PathBuf)>,
    /// Show what MEDIUM was customized with, without secrets.
    #[arg(long, conflicts_with_all = ["reset", "ca", "kernel_argument", "file", "config", "config_for", "configs", "cluster", "sign_with"])]
    show: bool,
    /// Restore the bytes that MEDIUM was built with.
    #[arg(long, conflicts_with_all = ["ca", "kernel_argument", "file", "config", "config_for", "configs", "cluster", "sign_with"])]
    reset: bool,
    #[command(flatten)]
    signing: SigningArguments,
}

/// Install configurations, for one machine or for many.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigurationArguments {
    /// The configuration for machines without one of their own.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A configuration for one machine: mac:52:54:00:12:34:56=FILE, serial:ABC=FILE, uuid:…=FILE or
    /// asset-tag:XYZ=FILE. Repeatable.
    #[arg(long, value_name = "SELECTOR=FILE", value_parser = pair::<Selector>)]
    config_for: Vec<(Selector, PathBuf)>,
    /// A directory of configurations, named by machine: default.yaml, mac-52-54-00-12-34-56.yaml, serial-ABC.yaml,
    /// uuid-….yaml, asset-tag-XYZ.yaml; or what `installer render` has written.
    #[arg(long, alias = "nodes", value_name = "DIR")]
    configs: Option<PathBuf>,
    /// A cluster file; its machines are known by their `macs`.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
}

impl From<ConfigurationArguments> for CustomizationSources {
    fn from(given: ConfigurationArguments) -> Self {
        let ConfigurationArguments { config, config_for, configs, cluster } = given;
        Self { fallback: config, for_machines: config_for, directory: configs, cluster, ..Self::default() }
    }
}

const EXAMPLES: &str = "Examples:
  iso-builder customize my.iso --config node.yaml
  iso-builder customize my.iso -o rack7.iso --configs rack7/ --ca company.pem
  iso-builder customize my.iso -o east.iso --cluster east.yaml
  iso-builder customize my.iso -o - --config-for serial:CZ1234=n1.yaml | ssh host dd of=/dev/sdb bs=4M
  iso-builder customize /dev/sdb --config node.yaml --kernel-argument console=ttyS1,115200
  iso-builder customize my.iso --config node.yaml --sign-with site
  iso-builder customize my.iso --show
  iso-builder customize my.iso --reset";

/// Splits at the last `=`; what follows is a path. Serial numbers may contain `=`.
fn pair<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<(T, PathBuf), String> {
    let (first, path) = text.rsplit_once('=').ok_or("it has no `=` before the path of a file")?;
    if path.is_empty() {
        return Err("there is no file path after the `=`".into());
    }
    Ok((first.parse().map_err(|error: T::Err| error.to_string())?, path.into()))
}

impl CustomizeCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let medium = MediumReader::open(&self.medium)?;
        let known = known_keys(&self.signing.directory(), &[], true)?;
        if self.show {
            return show(&Customization::of(&medium, &known), &self.medium, context);
        }
        let release = medium.release()?;
        let place = CustomizationLocation::find(&medium)?;
        let reset = self.reset;
        let (path, output) = (self.medium.clone(), self.output.clone());
        let signing = self.signing.clone().options()?;
        let mut gathered = if reset { GatheredCustomization::default() } else { self.sources().read()? };
        if gathered.content.is_empty() && !reset {
            let what = format!("no customization for {} is given", path.display());
            bail!(
                Failure::new(Class::Invalid, what)
                    .hint("Give --config, or see --help; --reset removes the customization.")
            );
        }
        let defaults = release.payload(Purpose::InstallDefaults);
        let text =
            defaults.map(|payload| medium.read_at_most(&payload.path, MAX_DEFAULTS_BYTES)).transpose()?;
        let text = text
            .map(String::from_utf8)
            .transpose()
            .class(Class::Verification, || format!("reading the defaults of {}", path.display()))?;
        let defaults = defaults.zip(text.as_deref()).map(|(payload, text)| (payload.path.as_str(), text));
        for warning in gathered.check(defaults)? {
            context.progress.warn("customize", &warning);
        }
        if gathered.content.boot_password.is_some() {
            can_have_password(&medium)?;
        }
        sign(&mut gathered.content, &signing)?;
        let wanted = wanted(&gathered.content)?;
        match output.as_deref() {
            Some(output) if named::is_standard(output) => {
                to_standard_output(&medium, &place, &wanted, context)
            }
            Some(output) => {
                refuse_itself(&place, output)?;
                copy::to_file(&medium, &place, &wanted, output)?;
                show(&Customization::of(&MediumReader::open(output)?, &known), output, context)
            }
            None if medium.local().is_none() => Err(served(medium.path())),
            None => {
                drop(medium);
                in_place(&place, &wanted, context, reset)?;
                show(&Customization::of(&MediumReader::open(&path)?, &known), &path, context)
            }
        }
    }

    fn sources(self) -> CustomizationSources {
        let Self { configurations, ca, kernel_argument, file, .. } = self;
        CustomizationSources {
            authorities: ca,
            arguments: kernel_argument,
            files: file,
            ..configurations.into()
        }
    }
}

/// Fails for a medium that was built before menus could have a password: it would ask for one at every entry and could
/// not check it. A directory is not booted by GRUB.
fn can_have_password(medium: &MediumReader) -> Result<()> {
    if medium.iso().is_none() {
        return Ok(());
    }
    let menu = medium
        .read_at_most(BOOT_MENU, MAX_MENU_BYTES)
        .class(Class::Verification, || format!("reading {BOOT_MENU}"))?;
    if String::from_utf8_lossy(&menu).contains(" --unrestricted {") {
        return Ok(());
    }
    let what =
        "the boot menu of this medium cannot have a password, and the configuration has os.boot_password";
    Err(Failure::new(Class::Invalid, what).hint("Build the medium again with this iso-builder.").into())
}

/// Signs the content with each of the keys, which may ask for passphrases.
fn sign(content: &mut Content, keys: &[SignerOptions]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let bytes = content.signed_bytes().class(Class::Invalid, || "packing the customization".into())?;
    let when = moment()?;
    let sign = |key| ReleaseSigner::open(key)?.sign_customization(&bytes, when);
    content.signatures = keys.iter().map(sign).collect::<Result<_>>()?;
    Ok(())
}

fn wanted(content: &Content) -> Result<AreaContents> {
    let what = || "packing the customization".to_owned();
    let area = area::bytes(content).class(Class::Invalid, what)?;
    let grub =
        argument::grub(&content.arguments, content.boot_password.as_ref()).class(Class::Invalid, what)?;
    Ok(AreaContents { area, grub })
}

fn in_place(
    place: &CustomizationLocation,
    wanted: &AreaContents,
    context: &Context,
    reset: bool,
) -> Result<()> {
    let what = || format!("customizing {}", place.path.display());
    let file = change::open(&place.path)?;
    if !reset && !change::protect(&file).class(Class::DiskIo, what)? {
        let text = format!("warning: others can read {}, and it may hold secrets", place.path.display());
        context.progress.note("customize", text);
    }
    // Installers would refuse a medium with half of the change.
    let _whole = cancellation::hold();
    change::apply(&file, place, wanted)
        .class(Class::DiskIo, || format!("{}; run the command again to complete the change", what()))?;
    Ok(())
}

fn served(url: &Path) -> anyhow::Error {
    let what = format!("{} is on a server, where it cannot be changed", url.display());
    Failure::new(Class::Invalid, what)
        .hint("Name a file for the customized copy with -o, or `-o -` for standard output.")
        .into()
}

fn to_standard_output(
    medium: &MediumReader,
    place: &CustomizationLocation,
    wanted: &AreaContents,
    context: &Context,
) -> Result<()> {
    refuse_directory(place)?;
    if context.format == Format::Json {
        let what = "standard output cannot be both the ISO and JSON";
        bail!(Failure::new(Class::Invalid, what).hint("Leave out --format json, or name a file with -o."));
    }
    let mut output = named::standard_output("an ISO")?;
    copy::to_stream(medium, place, wanted, &mut output)?;
    output.flush().context("writing to standard output")
}

fn refuse_directory(place: &CustomizationLocation) -> Result<()> {
    if place.directory {
        let what = "a netboot set is customized in place, without -o";
        bail!(Failure::new(Class::Invalid, what).hint("Copy its directory first to keep the original."));
    }
    Ok(())
}

fn refuse_itself(place: &CustomizationLocation, output: &Path) -> Result<()> {
    refuse_directory(place)?;
    let same = |one: &Path, other: &Path| {
        one.canonicalize().ok().zip(other.canonicalize().ok()).is_some_and(|(a, b)| a == b)
    };
    if same(&place.path, output) {
        let what = format!("-o names the medium itself, {}", output.display());
        bail!(Failure::new(Class::Invalid, what).hint("Leave out -o to change it in place."));
    }
    Ok(())
}

fn show(shown: &Customization, path: &Path, context: &Context) -> Result<()> {
    context.show(shown, || format!("{}: {shown}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;
    use base::failure::class_of;
    use medium::iso::Menu;
    use model::release::MediumKind;
    use testing::medium::SampleMedium;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        customize: CustomizeCommand,
    }

    #[test]
    fn former_names_of_options_are_taken_and_not_shown() {
        let parse = |line: &str| <Line as clap::Parser>::parse_from(line.split(' ')).customize;
        let now = parse("x my.iso --configs d --kernel-argument a=b");
        let before = parse("x my.iso --nodes d --argument a=b");
        assert_eq!(now.kernel_argument, before.kernel_argument);
        assert_eq!(now.configurations.configs, before.configurations.configs);
        let help = <Line as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(!help.contains("--nodes") && !help.contains("--argument "), "{help}");
    }

    #[test]
    fn a_key_signs_what_is_put_in_and_neither_what_is_shown_nor_nothing() {
        let parse = |line: &str| <Line as clap::Parser>::try_parse_from(line.split(' '));
        let signed = parse("x my.iso --config n.yaml --sign-with site --sign-with other --keys d").unwrap();
        assert_eq!(signed.customize.signing.options().unwrap().len(), 2);
        for line in ["x my.iso --show --sign-with site", "x my.iso --reset --sign-with site"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_medium_whose_menu_was_built_without_passwords_is_refused_one() {
        let sample = SampleMedium::new(MediumKind::Full).with_room();
        let error = can_have_password(&MediumReader::open(&sample.iso()).unwrap()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(error.to_string().contains("os.boot_password"), "{error}");
        let menu = Menu {
            architecture: model::architecture::Architecture::Amd64,
            title: "t".into(),
            volume: "T".into(),
            release: Digest::of(b""),
            arguments: &[],
            password: None,
        };
        std::fs::write(sample.tree().join(BOOT_MENU), menu.render()).unwrap();
        can_have_password(&MediumReader::open(&sample.iso()).unwrap()).unwrap();
    }
}
