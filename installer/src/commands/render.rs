//! `installer render`: the install configurations of the nodes of a cluster file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::program::{Context, Format, print};
use model::cluster_file::{self, DocumentRecord, Report, ValidClusterFile};

/// Write the install configuration of each node of a cluster file.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("where").required(true))]
pub(super) struct RenderArgs {
    /// The cluster file.
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,
    /// The directory for the documents, HOSTNAME.yaml each; they hold secrets and get mode 0600. `-` writes all of them to
    /// standard output, one behind the other.
    #[arg(short, long, value_name = "DIR or -", group = "where")]
    output: Option<PathBuf>,
    /// Print the configuration of one node for reading, its secrets hidden.
    #[arg(long, value_name = "NAME", group = "where")]
    node: Option<String>,
}

impl RenderArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let cluster = cluster_file::load(&self.cluster)?;
        for warning in &cluster.warnings {
            // Its first line is enough; the excerpt is for `validate`.
            context.progress.warn("cluster", warning.to_string().lines().next().unwrap_or_default());
        }
        match (&self.output, &self.node) {
            (Some(output), _) if named::is_standard(output) => stream(&cluster, context.format),
            (Some(directory), _) => write(&cluster, directory, context),
            (None, name) => show(&cluster, name.as_deref().unwrap_or_default(), context),
        }
    }
}

/// Writes the document of each node below `directory`, and prints the result for each file.
fn write(cluster: &ValidClusterFile, directory: &Path, context: &Context) -> Result<()> {
    let report = cluster_file::write(cluster, directory)?;
    context.show(&report, || listing(&report, directory))
}

/// Writes the documents of all nodes to standard output, as a stream of YAML documents; of a reader of JSON, as a list.
fn stream(cluster: &ValidClusterFile, format: Format) -> Result<()> {
    const WHAT: &str = "a stream of documents with secrets";
    match format {
        Format::Text => {
            let mut output = named::standard_output(WHAT)?;
            let written = output.write_all(documents(cluster).as_bytes());
            written.class(Class::DiskIo, || "writing to standard output".into())
        }
        Format::Json => {
            named::refuse_terminal_output(WHAT)?;
            let nodes: Vec<_> =
                cluster.documents.iter().map(|document| (&document.entry, &document.text)).collect();
            let node = |(entry, text): &(&DocumentRecord, &String)| json!({ "node": entry, "text": text });
            print(&serde_json::to_string_pretty(&nodes.iter().map(node).collect::<Vec<_>>())?)
        }
    }
}

fn documents(cluster: &ValidClusterFile) -> String {
    cluster.documents.iter().map(|document| format!("---\n{}", document.text)).collect()
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
fn show(cluster: &ValidClusterFile, name: &str, context: &Context) -> Result<()> {
    let document = cluster.documents.iter().find(|document| document.entry.hostname == name);
    let Some(document) = document else {
        let names: Vec<_> =
            cluster.documents.iter().map(|document| document.entry.hostname.as_str()).collect();
        let what = format!("the cluster {} has no node `{name}`", cluster.name);
        let hint = format!("Its nodes are {}.", names.join(", "));
        return Err(Failure::new(Class::Invalid, what).hint(hint).into());
    };
    let (text, value) = cluster_file::shown(document);
    context.show(&value, || text)
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
        let error = show(&cluster, "n2", &Context::silent(Format::Text)).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let text = render(&error);
        assert!(text.contains("no node `n2`") && text.contains("n1"), "{text}");
    }

    #[test]
    fn documents_follow_each_other_as_yaml_has_it() {
        let text = "cluster: {name: east, install: {vip: 192.0.2.9}}\n\
                    pools: [{name: p, role: management, machines: [{hostname: n1}, {hostname: n2}, {hostname: n3}]}]\n";
        let all = documents(&cluster_file::check(text, "c").unwrap());
        let parts: Vec<_> = all.split("---\n").filter(|part| !part.is_empty()).collect();
        assert_eq!(parts.len(), 3);
        assert!(parts[2].contains("hostname: n3"), "{all}");
    }

    #[test]
    fn every_file_is_listed_with_what_became_of_it() {
        let names = |name: &str| vec![name.to_owned()];
        let report = Report { written: names("a"), unchanged: names("b"), removed: names("c") };
        let listing = listing(&report, Path::new("d"));
        assert_eq!(listing, "written   d/a\nunchanged d/b\nremoved   d/c\n");
    }
}
