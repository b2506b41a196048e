//! Reads what goes into a medium from the files that the command line names, and checks it with the same rules as
//! everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify, Failure};
use base::files::named;
use medium::customization::content::is_inner;
use medium::customization::{Argument, Content, File, argument};
use model::config::sources::{Document, SourceKind, combine, state};
use model::config::{BootPassword, InstallConfig, Invalid, Pem, Secret, rules, shape};
use model::machine::Selector;
use model::machine_documents::{MachineDocument, MachineDocuments};

/// The name of the fallback in a directory of configurations.
const FALLBACK_STEM: &str = "default";
/// The most bytes that extra files may have together: they become a part of the node document.
const MAX_FILES_BYTES: usize = 512 << 10;
/// The permissions of a file that comes by standard input and has none.
const PIPED_MODE: u32 = 0o644;

#[derive(Clone, Debug, Default)]
pub struct CustomizationSources {
    /// The configuration for machines without one of their own.
    pub fallback: Option<PathBuf>,
    pub for_machines: Vec<(Selector, PathBuf)>,
    /// A directory of configurations, named by machine or rendered of a cluster file.
    pub directory: Option<PathBuf>,
    pub cluster: Option<PathBuf>,
    pub authorities: Vec<PathBuf>,
    pub arguments: Vec<String>,
    /// Files for the node: where they go, and where they are.
    pub files: Vec<(String, PathBuf)>,
}

/// The content of the area, and where its configurations came from.
#[derive(Debug, Default)]
pub struct GatheredCustomization {
    pub content: Content,
    /// The name of each configuration in messages.
    origins: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl CustomizationSources {
    /// Reads all files. Two configurations for one machine are an error that names both.
    pub fn read(&self) -> Result<GatheredCustomization> {
        let mut gathered = GatheredCustomization::default();
        if let Some(directory) = &self.directory {
            let found = MachineDocuments::of_directory(directory)?;
            if found.documents.is_empty() {
                let what = format!("{} has no configuration of a machine", directory.display());
                let hint = "Its files are called default.yaml, mac-52-54-00-12-34-56.yaml, serial-ABC.yaml, uuid-….yaml or asset-tag-XYZ.yaml, \
                            or `installer render` has written them for machines with `macs`.";
                return Err(Failure::new(Class::Invalid, what).hint(hint).into());
            }
            gathered.add_all(found, |name| directory.join(name).display().to_string())?;
        }
        if let Some(cluster) = &self.cluster {
            let found = MachineDocuments::of_cluster(cluster)?;
            if found.documents.is_empty() {
                let what = format!("{} names no machine by its `macs`", named::told(cluster));
                let hint = "Add the hardware addresses of each machine's cards, or give each its configuration with --config-for.";
                return Err(Failure::new(Class::Invalid, what).hint(hint).into());
            }
            gathered.add_all(found, |name| format!("{name} of {}", named::told(cluster)))?;
        }
        for (selector, path) in &self.for_machines {
            gathered.add_node(Some(selector), path)?;
        }
        if let Some(path) = &self.fallback {
            gathered.add_node(None, path)?;
        }
        for path in &self.authorities {
            gathered.add_authority(path)?;
        }
        for (target, path) in &self.files {
            gathered.add_file(target, path)?;
        }
        for word in &self.arguments {
            let what = || format!("reading --kernel-argument {}", word.split('=').next().unwrap_or_default());
            let argument: Argument = word.parse().class(Class::Invalid, what)?;
            gathered.content.arguments.push(argument);
        }
        Ok(gathered)
    }
}

impl GatheredCustomization {
    fn add_node(&mut self, selector: Option<&Selector>, path: &Path) -> Result<()> {
        let origin = named::told(path);
        let text =
            named::read_text(path).class(Class::Invalid, || format!("reading the configuration {origin}"))?;
        self.add_text(selector, origin, Secret::new(text))
    }

    /// Adds the configurations of several machines; `origin` is what messages call the one of a name.
    fn add_all(&mut self, found: MachineDocuments, origin: impl Fn(&str) -> String) -> Result<()> {
        self.warnings.extend(found.warnings);
        for MachineDocument { name, text, selectors } in found.documents {
            // One selector suffices; the same configuration under several would be found several times.
            self.add_text(selectors.first(), origin(&name), text)?;
        }
        Ok(())
    }

    fn add_text(&mut self, selector: Option<&Selector>, origin: String, text: Secret) -> Result<()> {
        let stem = selector.map_or_else(|| FALLBACK_STEM.to_owned(), Selector::stem);
        // Case does not matter in serial numbers, but it does in file names.
        let same = |name: &&String| name.eq_ignore_ascii_case(&format!("{stem}.yaml"));
        if let Some(before) = self.origins.keys().find(same).and_then(|name| self.origins.get(name)) {
            let machine = selector.map_or_else(|| "every other machine".to_owned(), ToString::to_string);
            let what = format!("there are two configurations for {machine}: {before} and {origin}");
            return Err(Failure::new(Class::Invalid, what).hint("Keep one of the two.").into());
        }
        let name = format!("{stem}.yaml");
        self.origins.insert(name.clone(), origin);
        self.content.nodes.insert(name, text);
        Ok(())
    }

    fn add_authority(&mut self, path: &Path) -> Result<()> {
        let what = || format!("reading the certificate {}", named::told(path));
        let text = named::read_text(path).class(Class::Invalid, what)?;
        if text.parse::<Pem>().is_err() {
            let why = anyhow!(
                "it is not a certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE, or it has a private key"
            );
            return Err(Failure::new(Class::Invalid, what()).because(why).into());
        }
        let stem = match named::is_standard(path) {
            true => "standard-input".into(),
            false => path.file_stem().unwrap_or_default().to_string_lossy(),
        };
        let name = format!("{stem}.pem");
        let other = self.content.authorities.get(&name).is_some_and(|there| *there != text);
        if other || !is_inner(&name) {
            let why =
                anyhow!("another certificate has the name {name}, or the name cannot be used on a medium");
            return Err(Failure::new(Class::Invalid, what()).because(why).hint("Rename the file.").into());
        }
        self.content.authorities.insert(name, text);
        Ok(())
    }

    fn add_file(&mut self, target: &str, path: &Path) -> Result<()> {
        let what = || format!("reading {} for {target}", named::told(path));
        let inner = target.strip_prefix('/').filter(|inner| is_inner(inner));
        let inner = inner.ok_or_else(|| anyhow!("{target} is not an absolute path without `.` and `..`"));
        let inner = inner.class(Class::Invalid, what)?.to_owned();
        let bytes = named::read_at_most(path, MAX_FILES_BYTES as u64).class(Class::Invalid, what)?;
        let mode = match named::is_standard(path) {
            true => PIPED_MODE,
            false => fs::metadata(path).class(Class::Invalid, what)?.permissions().mode() & 0o777,
        };
        let file = File { mode, bytes };
        if self.content.files.insert(inner, file).is_some() {
            let what = format!("two files are given for {target}");
            return Err(Failure::new(Class::Invalid, what).hint("Keep one of the two.").into());
        }
        Ok(())
    }

    /// Checks everything as the installer will, with the defaults of the medium (name and text); all mistakes of all
    /// configurations are reported together. If the configurations set a password for the boot menu, it becomes part of
    /// the content. Returns the warnings.
    pub fn check(&mut self, defaults: Option<(&str, &str)>) -> Result<Vec<String>> {
        let content = &self.content;
        let size: usize = content.files.values().map(|file| file.bytes.len()).sum();
        if size > MAX_FILES_BYTES {
            let what =
                format!("the files for the node have {size} bytes together; the limit is {MAX_FILES_BYTES}");
            return Err(Failure::new(Class::Invalid, what)
                .hint("Put large files into a container image.")
                .into());
        }
        argument::grub(&content.arguments, None)
            .class(Class::Invalid, || "reading --kernel-argument".into())?;
        let line = argument::line(&content.arguments);
        let parameters = || Document::command_line(&line, shape::install_config());
        model::config::sources::check_partial(parameters()).map_err(state::refusal)?;
        let (mut mistakes, mut warnings) = (Vec::new(), self.warnings.clone());
        let mut passwords = Passwords::default();
        for (name, text) in &content.nodes {
            let file = self.origins.get(name).unwrap_or(name).clone();
            let mut documents: Vec<_> = defaults
                .map(|(name, text)| Document::yaml(SourceKind::Defaults, name, text))
                .into_iter()
                .collect();
            documents.push(Document::yaml(SourceKind::Embedded, &file, text.expose()));
            documents.push(parameters());
            match combine(&documents) {
                Err(Invalid(found)) => mistakes.extend(found),
                Ok(combined) => {
                    let notes = combined.warnings.iter().map(ToString::to_string);
                    warnings.extend(notes.filter_map(|note| note.lines().next().map(str::to_owned)));
                    if !combined.config.install.automatic {
                        warnings.push(format!(
                            "{file} does not set install.automatic: true, so an install will ask questions"
                        ));
                    }
                    passwords.add(&combined.config, &file)?;
                    check_files(content, combined.config, Some(&file))?;
                }
            }
        }
        if !mistakes.is_empty() {
            return Err(state::refusal(Invalid(mistakes)).into());
        }
        if content.nodes.is_empty() {
            // The configuration comes from elsewhere, but files that no node can have are known here.
            check_files(content, InstallConfig::default(), None)?;
        }
        self.content.boot_password = passwords.of_menu();
        Ok(warnings)
    }
}

/// The boot menu's passwords that configurations set. A medium has one menu, so all have to be the same.
#[derive(Default)]
struct Passwords(Option<(BootPassword, String)>);

impl Passwords {
    fn add(&mut self, config: &InstallConfig, file: &str) -> Result<()> {
        let Some(password) = &config.os.boot_password else { return Ok(()) };
        match &self.0 {
            Some((known, other)) if known != password => {
                let what = format!(
                    "{other} and {file} have different os.boot_password, and a medium has one boot menu"
                );
                let hint = "Give both the same hash, or make a medium for each.";
                Err(Failure::new(Class::Invalid, what).hint(hint).into())
            }
            _ => {
                self.0 = Some((password.clone(), file.to_owned()));
                Ok(())
            }
        }
    }

    fn of_menu(self) -> Option<BootPassword> {
        self.0.map(|(password, _)| password)
    }
}

/// Checks files for the node with the rules for the files of their configuration. What is a warning in a document is an
/// error here: the node would not have the file.
fn check_files(content: &Content, mut config: InstallConfig, file: Option<&str>) -> Result<()> {
    let own = config.os.write_files.len();
    content.add_files(&mut config);
    let place = |finding: &document::finding::Finding| {
        let index = finding.path.strip_prefix("os.write_files[")?.split(']').next()?;
        index.parse::<usize>().ok().filter(|index| *index >= own)
    };
    for finding in rules::check(&config) {
        if let Some(added) = place(&finding).and_then(|index| config.os.write_files.get(index)) {
            let with = file.map(|file| format!(" with {file}")).unwrap_or_default();
            let what = format!("--file {} is not possible{with}", &*added.path);
            return Err(Failure::new(Class::Invalid, what).because(anyhow!("{}", finding.message)).into());
        }
    }
    Ok(())
}
