//! The install configurations of the nodes of a cluster file, for `installer render`.

use std::path::Path;

use anyhow::Result;

use base::failure::{Class, Failure};
use base::program::{Format, print};
use model::cluster_file::{self, Checked, Report};

/// Writes the document of each node below `directory`, and prints the result for each file.
pub(crate) fn write(cluster: &Checked, directory: &Path, format: Format) -> Result<()> {
    let report = cluster_file::write(cluster, directory)?;
    match format {
        Format::Text => print(&listing(&report, directory)),
        Format::Json => print(&serde_json::to_string_pretty(&report)?),
    }
}

fn listing(report: &Report, directory: &Path) -> String {
    let lines = |verb: &str, names: &[String]| -> String {
        names.iter().map(|name| format!("{verb} {}\n", directory.join(name).display())).collect()
    };
    let parts =
        [("written  ", &report.written), ("unchanged", &report.unchanged), ("removed  ", &report.removed)];
    parts.map(|(verb, names)| lines(verb, names)).concat()
}

/// Prints the document of one node for reading, its secrets hidden.
pub(crate) fn show(cluster: &Checked, name: &str, format: Format) -> Result<()> {
    let document = cluster.documents.iter().find(|document| document.entry.hostname == name);
    let Some(document) = document else {
        let names: Vec<_> =
            cluster.documents.iter().map(|document| document.entry.hostname.as_str()).collect();
        let what = format!("the cluster {} has no node `{name}`", cluster.name);
        let hint = format!("Its nodes are {}.", names.join(", "));
        return Err(Failure::new(Class::Invalid, what).hint(hint).into());
    };
    let (text, value) = cluster_file::shown(document);
    match format {
        Format::Text => print(&text),
        Format::Json => print(&serde_json::to_string_pretty(&value)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    #[test]
    fn a_node_that_is_not_there_is_refused_with_the_names_of_those_that_are() {
        let text =
            "cluster: {name: east}\npools: [{name: p, role: management, machines: [{hostname: n1}]}]\n";
        let cluster = cluster_file::check(text, "c").unwrap();
        let error = show(&cluster, "n2", Format::Text).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let text = render(&error);
        assert!(text.contains("no node `n2`") && text.contains("n1"), "{text}");
    }

    #[test]
    fn every_file_is_listed_with_what_became_of_it() {
        let names = |name: &str| vec![name.to_owned()];
        let report = Report { written: names("a"), unchanged: names("b"), removed: names("c") };
        let listing = listing(&report, Path::new("d"));
        assert_eq!(listing, "written   d/a\nunchanged d/b\nremoved   d/c\n");
    }
}
