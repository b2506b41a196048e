//! A directory with a configuration for each machine, by the names of its files: `default.yaml` is the fallback,
//! `mac-52-54-00-12-34-56.yaml`, `serial-ABC.yaml`, `uuid-….yaml` and `asset-tag-XYZ.yaml` are for one machine each.
//!
//! The choice is made from names alone, so that it is the same for a directory, a volume and the archive in a medium.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::{Identity, Selector};
use base::failure::{Class, Classify, Failure};

/// The name of the fallback without its suffix.
const DEFAULT: &str = "default";
const SUFFIXES: [&str; 2] = [".yaml", ".yml"];

/// The files of such a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    files: BTreeMap<Selector, String>,
    fallback: Option<String>,
}

/// The file that is for a machine, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineFileMatch<'a> {
    pub file: &'a str,
    /// The identifier of the machine that it is for; none for the fallback.
    pub selector: Option<&'a Selector>,
}

impl Nodes {
    /// Looks at the names in a directory. Names that do not end in `.yaml` or `.yml`, and hidden ones, are passed over;
    /// any other that says no machine is an error, for nobody would miss the configuration with a mistyped name.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_beside(directory, &BTreeSet::new())
    }

    /// The same, but for names that are `known` to be of something else.
    pub fn open_beside(directory: &Path, known: &BTreeSet<&str>) -> Result<Self> {
        let what = || format!("reading the directory {}", directory.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory).class(Class::Invalid, what)? {
            let entry = entry.class(Class::DiskIo, what)?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|name| anyhow!("{} is not a name in UTF-8", name.display()))?;
            if !known.contains(name.as_str()) {
                names.push(name);
            }
        }
        Self::of(&directory.display().to_string(), names)
    }

    /// The same from names; `place` is what errors call the directory.
    pub fn of(place: &str, names: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut nodes = Self::default();
        let mut names: Vec<_> = names.into_iter().filter(|name| !name.starts_with('.')).collect();
        // Errors name files in an order that does not depend on the file system.
        names.sort_unstable();
        for name in names {
            let Some(stem) = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)) else { continue };
            let before = if stem == DEFAULT {
                nodes.fallback.replace(name.clone())
            } else {
                let selector =
                    Selector::from_stem(stem).class(Class::Invalid, || format!("{place}: {name}"))?;
                nodes.files.insert(selector, name.clone())
            };
            if let Some(before) = before {
                return Err(twice(place, &before, &name));
            }
        }
        Ok(nodes)
    }

    /// The file for the machine: the one whose selector fits, else the fallback, else none. Two that fit are an error.
    pub fn choose(&self, identity: &Identity) -> Result<Option<MachineFileMatch<'_>>> {
        let mut fitting = self.files.iter().filter(|(selector, _)| selector.fits(identity));
        let (first, second) = (fitting.next(), fitting.next());
        match (first, second) {
            (Some((_, one)), Some((_, other))) => Err(twice("this machine", one, other)),
            (Some((selector, file)), None) => Ok(Some(MachineFileMatch { file, selector: Some(selector) })),
            _ => Ok(self.fallback.as_deref().map(|file| MachineFileMatch { file, selector: None })),
        }
    }

    /// Every file with its selector, the fallback last and without one.
    pub fn iter(&self) -> impl Iterator<Item = MachineFileMatch<'_>> {
        let own =
            self.files.iter().map(|(selector, file)| MachineFileMatch { file, selector: Some(selector) });
        own.chain(self.fallback.as_deref().map(|file| MachineFileMatch { file, selector: None }))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.fallback.is_none()
    }
}

fn twice(place: &str, one: &str, other: &str) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("{place} has two configurations for one machine: {one} and {other}"))
        .hint("Keep one of the two.")
        .into()
}

impl fmt::Display for MachineFileMatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selector {
            Some(selector) => write!(f, "{}, because this machine has {selector}", self.file),
            None => write!(f, "{}, because no other file is for this machine", self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;

    fn nodes(names: &[&str]) -> Result<Nodes> {
        Nodes::of("nodes", names.iter().map(|name| (*name).to_owned()))
    }

    fn identity() -> Identity {
        Identity {
            macs: vec!["52:54:00:00:00:01".parse().unwrap(), "52:54:00:00:00:02".parse().unwrap()],
            serial: Some("CZ12".into()),
            ..Identity::default()
        }
    }

    #[test]
    fn the_file_for_the_machine_comes_before_the_fallback() {
        for (names, expected) in [
            (
                &["default.yaml", "serial-cz12.yaml"][..],
                Some("serial-cz12.yaml, because this machine has serial:cz12"),
            ),
            (
                &["mac-52-54-00-00-00-02.yml"],
                Some("mac-52-54-00-00-00-02.yml, because this machine has mac:52:54:00:00:00:02"),
            ),
            (
                &["default.yaml", "serial-CZ13.yaml"],
                Some("default.yaml, because no other file is for this machine"),
            ),
            (&["serial-CZ13.yaml"], None),
            (&["README.md", ".default.yaml.swp", ".hidden.yaml"], None),
        ] {
            let nodes = nodes(names).unwrap();
            let found = nodes.choose(&identity()).unwrap();
            assert_eq!(found.map(|chosen| chosen.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn two_files_for_one_machine_are_an_error_that_names_both() {
        for names in [
            ["mac-52-54-00-00-00-01.yaml", "mac-52-54-00-00-00-01.yml"],
            ["mac-52-54-00-00-00-0a.yaml", "mac-52-54-00-00-00-0A.yaml"],
            ["serial-cz12.yaml", "serial-CZ12.yaml"],
            ["default.yaml", "default.yml"],
            ["mac-52-54-00-00-00-01.yaml", "mac-52-54-00-00-00-02.yaml"],
            ["mac-52-54-00-00-00-01.yaml", "serial-CZ12.yaml"],
        ] {
            let error = nodes(&names).and_then(|nodes| nodes.choose(&identity()).map(|_| ())).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid);
            assert!(names.iter().all(|name| error.to_string().contains(name)), "{error}");
        }
    }

    #[test]
    fn a_configuration_with_a_name_that_says_no_machine_is_an_error() {
        let error = nodes(&["node-1.yaml"]).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let text = format!("{error:#}");
        assert!(
            text.contains("nodes: node-1.yaml") && text.contains("mac-, serial-, uuid- or asset-tag-"),
            "{text}"
        );
    }

    #[test]
    fn a_directory_is_read_by_its_names() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["serial-A.yaml", "default.yml", "notes.txt"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let nodes = Nodes::open(directory.path()).unwrap();
        let files: Vec<_> = nodes.iter().map(|chosen| chosen.file).collect();
        assert_eq!(files, ["serial-A.yaml", "default.yml"]);
        assert!(!nodes.is_empty());
        let error = Nodes::open(&directory.path().join("absent")).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
    }
}
