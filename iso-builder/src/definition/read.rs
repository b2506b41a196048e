//! Reading a definition, strictly: what is wrong is told with its place, and paths must exist.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::size::ByteSize;
use model::config::diagnostic::LISTED;
use model::release::is_boot_menu_word;
use transfer::download::Patience;
use transfer::registry::{Client, Settings};

use super::{Base, Definition};
use crate::images::Source;
use crate::kubernetes::Kubernetes;

/// A definition that has been read, with the directory that its paths are relative to.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The definition's file.
    pub file: PathBuf,
    /// The definition.
    pub definition: Definition,
}

impl Loaded {
    /// Reads and checks a definition. Everything found wrong is told at once, of very much the first [`LISTED`]; paths
    /// must exist.
    pub fn read(file: &Path) -> Result<Self> {
        let definition: Definition = read(file)?;
        let loaded = Self { file: file.to_owned(), definition };
        let mut problems = loaded.problems();
        if problems.is_empty() {
            return Ok(loaded);
        }
        if let Some(more @ 1..) = problems.len().checked_sub(LISTED) {
            problems.truncate(LISTED);
            problems.push(format!("and {more} more mistakes"));
        }
        Err(Failure::new(Class::Invalid, format!("{} is not a valid image definition", file.display()))
            .because(anyhow::anyhow!("{}", problems.join("\n  because: ")))
            .hint("Correct the definition; `iso-builder schema` prints every key.")
            .into())
    }

    /// A path of the definition as seen from the current directory.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A client for the definition's registries, with so many bytes a second where that is limited.
    pub fn registries(&self, rate: Option<ByteSize>) -> Result<Client> {
        let directory = self.file.parent().unwrap_or(Path::new(""));
        Client::new(Settings {
            registries: self.definition.registries.clone().relative_to(directory),
            authorities: Vec::new(),
            docker_config: true,
            patience: Patience::default(),
            rate,
        })
    }

    fn problems(&self) -> Vec<String> {
        let definition = &self.definition;
        let mut problems = Vec::new();
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if definition.id.is_empty() || !definition.id.chars().all(name) {
            problems.push(format!("id: {:?} may only have a-z, 0-9 and -", definition.id));
        }
        if definition.name.contains(char::is_control) {
            problems.push(format!("name: {:?} may not have control characters", definition.name));
        }
        let version = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
        if definition.version.is_empty() || !definition.version.chars().all(version) {
            problems
                .push(format!("version: {:?} may only have letters, digits and .-+~", definition.version));
        }
        let packages = match &definition.base {
            Base::Debian(base) => base.include.as_slice(),
            _ => &[],
        };
        for package in packages {
            if !is_package_name(package) {
                problems.push(format!("{package:?} is not the name of a Debian package"));
            }
        }
        for argument in &definition.kernel.arguments {
            if !is_boot_menu_word(argument) {
                problems.push(format!("kernel.arguments: {argument:?} cannot stand in a boot menu"));
            }
        }
        if let Some(kubernetes) = &definition.kubernetes {
            problems.extend(kubernetes.problems());
            if definition.images.runtime.is_some_and(|runtime| runtime != definition.runtime()) {
                problems.push(format!(
                    "images.runtime: it is {} because kubernetes.distribution is; leave the key out",
                    kubernetes.distribution.name()
                ));
            }
        }
        for image in definition.images.built() {
            if let Err(report) = garde::Validate::validate(image) {
                problems.extend(
                    report.iter().map(|(path, error)| format!("images: {}: {path}: {error}", image.name)),
                );
            }
        }
        for (key, path, kind) in self.paths() {
            let path = self.resolve(path);
            let right = match kind {
                PathKind::Directory => path.is_dir(),
                PathKind::File => path.is_file(),
                PathKind::Either => path.exists(),
            };
            if !right {
                problems.push(format!("{key}: there is no {} {}", kind.noun(), path.display()));
            }
        }
        problems
    }

    fn paths(&self) -> Vec<(&'static str, &Path, PathKind)> {
        let definition = &self.definition;
        let mut paths = Vec::new();
        match &definition.base {
            Base::Debian(_) => {}
            Base::Oci(base) => paths.push(("base.oci.path", base.path.as_path(), PathKind::Either)),
            Base::Archive(base) => paths.push(("base.archive.path", base.path.as_path(), PathKind::File)),
            Base::Directory(base) => {
                paths.push(("base.directory.path", base.path.as_path(), PathKind::Directory))
            }
        }
        let overlays = &definition.overlays;
        paths.extend(overlays.rootfs.iter().map(|p| ("overlays.rootfs", p.as_path(), PathKind::Directory)));
        paths.extend(overlays.initrd.iter().map(|p| ("overlays.initrd", p.as_path(), PathKind::Directory)));
        for entry in &definition.images.preload {
            match &entry.source {
                Source::List(list) => paths.push(("list", list, PathKind::File)),
                Source::Local(local) if local.is_layout => {
                    paths.push(("layout", &local.path, PathKind::Directory))
                }
                Source::Local(local) => {
                    paths.push(("archive", &local.path, PathKind::File));
                    paths.extend(local.checksums.iter().map(|p| ("checksums", p.as_path(), PathKind::File)));
                }
                Source::Built(_) | Source::Registry(_) => {}
            }
        }
        if let Some(directory) = definition.kubernetes.as_ref().and_then(Kubernetes::directory) {
            paths.push(("kubernetes.artifacts", directory, PathKind::Directory));
        }
        paths.extend(definition.manifests.iter().map(|m| ("manifests", m.path.as_path(), PathKind::Either)));
        for chart in &definition.charts {
            paths.push(("charts", &chart.path, PathKind::Either));
            paths.extend(chart.values.iter().map(|p| ("charts", p.as_path(), PathKind::File)));
        }
        for (key, file) in [
            ("install_config", &definition.install_config),
            ("install_defaults", &definition.install_defaults),
        ] {
            paths.extend(file.iter().map(|p| (key, p.as_path(), PathKind::File)));
        }
        paths
    }
}

/// Reads the YAML strictly. The message has line and column, the user's own line, and for an unknown word the
/// known one that is most like it.
fn read(file: &Path) -> Result<Definition> {
    let text = base::files::read_text(file)
        .class(Class::Invalid, || format!("reading the image definition {}", file.display()))?;
    serde_saphyr::from_str(&text).map_err(|error| {
        let message = error.to_string();
        let failure =
            Failure::new(Class::Invalid, format!("{} is not a valid image definition", file.display()));
        let hint = similar(&message).map(|word| format!("Did you mean `{word}`?"));
        let hint = hint.unwrap_or_else(|| "`iso-builder schema` prints every key.".into());
        failure.because(anyhow::anyhow!("{}", message.trim_end())).hint(hint).into()
    })
}

/// The message has the unknown word between back quotes and, after "expected", every known one.
fn similar(message: &str) -> Option<String> {
    let line =
        message.lines().find(|line| line.contains("unknown field") || line.contains("unknown variant"))?;
    let (head, known) = line.split_once("expected")?;
    let unknown = head.split('`').nth(1)?;
    let words = known.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let distance = |word: &&str| strsim::damerau_levenshtein(unknown, word);
    words.min_by_key(distance).filter(|word| distance(word) <= 2).map(str::to_owned)
}

#[derive(Clone, Copy)]
enum PathKind {
    Directory,
    File,
    Either,
}

impl PathKind {
    fn noun(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File => "file",
            Self::Either => "file or directory",
        }
    }
}

/// Debian policy 5.6.1, with an optional `/release` or `=version` as apt understands them.
fn is_package_name(text: &str) -> bool {
    let name = text.split(['=', '/']).next().unwrap_or("");
    name.len() >= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.=/~:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_gets_the_key_that_was_meant() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image.yaml");
        for (text, hint) in [("id: x\nnmae: y\n", "Did you mean `name`?"), ("zebra: 1\n", "prints every key")]
        {
            std::fs::write(&file, text).unwrap();
            let told = base::failure::render(&Loaded::read(&file).unwrap_err());
            assert!(told.contains(hint), "{told}");
        }
    }

    #[test]
    fn of_a_definition_with_very_many_mistakes_a_hundred_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image.yaml");
        let missing: Vec<_> = (0..1000).map(|number| format!("x{number}")).collect();
        let text = format!(
            "{{id: a, name: A, version: '1', base: {{debian: {{include: [aa]}}}}, overlays: {{rootfs: [{}]}}}}",
            missing.join(", ")
        );
        std::fs::write(&file, text).unwrap();
        let told = base::failure::render(&Loaded::read(&file).unwrap_err());
        assert!(told.contains("no directory") && told.contains("and 900 more mistakes"), "{told}");
        assert_eq!(told.matches("there is no directory").count(), 100);
    }

    #[test]
    fn package_names_that_apt_would_take_for_options_or_patterns_are_refused() {
        for name in ["-y", "?essential", "a", "UPPER", "two words", "~Uinstalled", "$(reboot)"] {
            assert!(!is_package_name(name), "{name}");
        }
        for name in ["libc6", "g++", "linux-image-amd64", "curl=7.88.1-10", "0ad"] {
            assert!(is_package_name(name), "{name}");
        }
    }
}
