//! Install configurations of several machines, each with the marks of its machine: files of a directory that are named by
//! machine, what `installer render` has written, or a cluster file.
//!
//! `iso-builder customize`, `config-medium` and `serve` take the same ones.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Classify};
use base::files::read_entry;

use crate::cluster_file::{self, DocumentRecord};
use crate::config::Secret;
use crate::machine::{Nodes, Selector};

/// The largest configuration in bytes.
const LIMIT: u64 = 1 << 20;

/// The configuration of one machine, or that of all others.
#[derive(Clone, Debug)]
pub struct MachineDocument {
    pub name: String,
    pub text: Secret,
    /// The marks of its machine; none for the fallback.
    pub selectors: Vec<Selector>,
}

#[derive(Clone, Debug, Default)]
pub struct MachineDocuments {
    pub documents: Vec<MachineDocument>,
    /// Each names a machine whose configuration is left out, or is told of a cluster file; one line.
    pub warnings: Vec<String>,
}

impl MachineDocuments {
    /// Those of a directory. Files that `installer render` has written there are for the machines that its record names; any
    /// other is named by its machine, `mac-52-54-00-12-34-56.yaml` for instance.
    pub fn of_directory(directory: &Path) -> Result<Self> {
        let rendered = cluster_file::rendered(directory)?;
        let written: BTreeSet<&str> = rendered.iter().map(|record| record.file.as_str()).collect();
        let nodes = Nodes::open_beside(directory, &written)?;
        let mut found = Self::default();
        let read = |name: &str| -> Result<Secret> {
            let what = || format!("reading the configuration {}", directory.join(name).display());
            let bytes = read_entry(directory, Path::new(name), LIMIT).class(Class::Invalid, what)?;
            Ok(Secret::new(String::from_utf8(bytes).class(Class::Invalid, what)?))
        };
        for record in &rendered {
            found.add(record, || read(&record.file))?;
        }
        for chosen in nodes.iter() {
            let (name, selectors) = (chosen.file.to_owned(), chosen.selector.cloned().into_iter().collect());
            found.documents.push(MachineDocument { text: read(&name)?, name, selectors });
        }
        Ok(found)
    }

    pub fn of_cluster(file: &Path) -> Result<Self> {
        let checked = cluster_file::load(file)?;
        let first_line = |warning: String| warning.lines().next().unwrap_or_default().to_owned();
        let warnings = checked.warnings.iter().map(|warning| first_line(warning.to_string())).collect();
        let mut found = Self { warnings, ..Self::default() };
        for document in checked.documents {
            found.add(&document.entry, || Ok(Secret::new(document.text.clone())))?;
        }
        Ok(found)
    }

    fn add(&mut self, record: &DocumentRecord, text: impl FnOnce() -> Result<Secret>) -> Result<()> {
        let selectors: Vec<_> =
            record.macs.iter().filter_map(|mac| mac.parse().ok()).map(Selector::Mac).collect();
        if selectors.is_empty() {
            let hostname = &record.hostname;
            let text = format!(
                "{hostname} has no macs in the cluster file, so that its machine cannot be recognised"
            );
            self.warnings.push(format!("{text}; its configuration is left out"));
        } else {
            self.documents.push(MachineDocument { name: record.file.clone(), text: text()?, selectors });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "cluster: {name: east, token: 9f2c4e6a8b0d1357924680acebdf1357, install: {vip: 192.0.2.9}}\n\
         pools:\n- name: p\n  role: management\n  machines:\n\
         \x20 - {hostname: n1, macs: ['52:54:00:00:00:01', '52:54:00:00:00:11']}\n\
         \x20 - {hostname: n2, macs: ['52:54:00:00:00:02']}\n\
         \x20 - {hostname: n3}\n";

    fn told(found: &MachineDocuments) -> Vec<(&str, Vec<String>)> {
        let marks = |document: &MachineDocument| document.selectors.iter().map(ToString::to_string).collect();
        found.documents.iter().map(|document| (document.name.as_str(), marks(document))).collect()
    }

    #[test]
    fn a_cluster_file_and_what_was_rendered_of_it_are_for_the_same_machines() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cluster.yaml");
        std::fs::write(&file, CLUSTER).unwrap();
        let of_cluster = MachineDocuments::of_cluster(&file).unwrap();
        let macs = |macs: &[&str]| macs.iter().map(|mac| format!("mac:{mac}")).collect::<Vec<_>>();
        let expected = vec![
            ("n1.yaml", macs(&["52:54:00:00:00:01", "52:54:00:00:00:11"])),
            ("n2.yaml", macs(&["52:54:00:00:00:02"])),
        ];
        assert_eq!(told(&of_cluster), expected);
        assert!(of_cluster.warnings.iter().any(|warning| warning.starts_with("n3 has no macs")));

        let out = directory.path().join("out");
        cluster_file::write(&cluster_file::load(&file).unwrap(), &out).unwrap();
        let rendered = MachineDocuments::of_directory(&out).unwrap();
        assert_eq!(told(&rendered), expected);
        assert_eq!(rendered.documents[0].text.expose(), of_cluster.documents[0].text.expose());

        std::fs::write(out.join("serial-A.yaml"), "os: {hostname: n3}\n").unwrap();
        let with_own = MachineDocuments::of_directory(&out).unwrap();
        assert_eq!(told(&with_own).last().unwrap(), &("serial-A.yaml", vec!["serial:A".to_owned()]));
    }

    #[test]
    fn what_is_no_regular_file_of_the_directory_is_an_error_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serial-A.yaml");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let told = || format!("{:#}", MachineDocuments::of_directory(directory.path()).unwrap_err());
        assert!(told().contains("serial-A.yaml is a FIFO, not a regular file"), "{}", told());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(told().contains("is a link to another directory"), "{}", told());
    }

    #[test]
    fn a_file_that_names_no_machine_and_was_not_rendered_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("node-1.yaml"), "os: {hostname: n}\n").unwrap();
        let error = format!("{:#}", MachineDocuments::of_directory(directory.path()).unwrap_err());
        assert!(error.contains("node-1.yaml") && error.contains("mac-"), "{error}");
    }
}
