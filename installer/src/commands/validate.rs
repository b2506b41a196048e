//! `installer validate`: checks install configurations and reports all mistakes and warnings at once.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::app::gather;
use base::failure::{Class, Failure};
use base::files::named;
use base::program::{Context, Format, print};
use model::cluster_file;
use model::config::sources::{CombinedConfig, Document, SourceKind, combine, combine_alone};
use model::config::{self, Diagnostic, Invalid, shape};

#[derive(Debug, clap::Args)]
pub(super) struct ValidateArgs {
    /// Install configurations; `-` is standard input.
    #[arg(required_unless_present_any = ["cluster", "cmdline"], value_name = "FILE or -")]
    files: Vec<PathBuf>,
    /// A cluster file, checked as a whole, in place of install configurations.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "show_sources", "cmdline"])]
    cluster: Option<PathBuf>,
    /// Count warnings as mistakes.
    #[arg(long)]
    strict: bool,
    /// Treat the files as sources of one configuration, the weakest first, and show where each value comes from.
    #[arg(long)]
    show_sources: bool,
    /// Kernel parameters: alone, or as one configuration with the files, over which they have precedence. @FILE reads them from
    /// a file.
    #[arg(long, value_name = "TEXT or @FILE")]
    cmdline: Option<String>,
}

impl ValidateArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.show_sources || self.cmdline.is_some() {
            return self.merge(context);
        }
        let (output, result) = self.judge(context.format)?;
        if !output.is_empty() {
            print(&output)?;
        }
        result
    }

    /// The text for standard output, and whether the files pass.
    fn judge(&self, format: Format) -> Result<(String, Result<()>)> {
        let (mut found, mut report) = (Vec::new(), String::new());
        let check = if self.cluster.is_some() { diagnose_cluster } else { diagnose };
        for path in self.cluster.iter().chain(&self.files) {
            let (diagnostics, what) = check(path);
            for warning in &diagnostics {
                report.push_str(&format!("{warning}\n"));
            }
            report.push_str(&format!("{} is valid{what}\n", named::told(path)));
            found.extend(diagnostics);
        }
        let found = Invalid(found);
        Ok(match (self.fails(&found), format) {
            (false, Format::Text) => (report, Ok(())),
            // If there are mistakes too, the warnings go to standard error with them.
            (true, Format::Text) => (String::new(), Err(refuse(format!("{}\n{found}", count(&found))))),
            (failed, Format::Json) => {
                let result = if failed { Err(refuse(count(&found))) } else { Ok(()) };
                (serde_json::to_string_pretty(&found.0)?, result)
            }
        })
    }

    fn fails(&self, found: &Invalid) -> bool {
        found.errors() > 0 || self.strict && !found.0.is_empty()
    }

    /// `--show-sources` and `--cmdline`: one configuration out of all files and the kernel parameters.
    fn merge(&self, context: &Context) -> Result<()> {
        let mut documents = Vec::new();
        let mut unreadable = Vec::new();
        for path in &self.files {
            let name = named::told(path);
            match named::read_text(path) {
                Ok(text) => documents.push(Document::yaml(SourceKind::File, name, text)),
                Err(error) => unreadable.push(unreadable_file(&name, &error)),
            }
        }
        let line = self.cmdline.as_deref().map(gather::command_line).transpose()?;
        documents.extend(line.as_deref().map(|line| Document::command_line(line, shape::install_config())));
        let result = match documents.len() {
            1 if self.files.is_empty() => documents.pop().map_or_else(|| combine(&[]), combine_alone),
            _ => combine(&documents),
        };
        let (mut combined, mistakes) = match result {
            Ok(combined) => (combined, Vec::new()),
            Err(invalid) => (CombinedConfig::default(), invalid.0),
        };
        let warnings = std::mem::take(&mut combined.warnings);
        let found = Invalid(unreadable.into_iter().chain(mistakes).chain(warnings).collect());
        if context.format == Format::Json {
            let json = serde_json::json!({ "mistakes": found.0, "sources": combined.sources() });
            print(&serde_json::to_string_pretty(&json)?)?;
        }
        match (self.fails(&found), context.format) {
            (true, Format::Text) => Err(refuse(format!("{}\n{found}", count(&found)))),
            (true, Format::Json) => Err(refuse(count(&found))),
            (false, Format::Text) => {
                let warnings = if found.0.is_empty() { String::new() } else { format!("{found}\n") };
                let result = match self.show_sources {
                    true => combined.listing(),
                    false => format!("{} valid\n", self.subject()),
                };
                print(&(warnings + &result))
            }
            (false, Format::Json) => Ok(()),
        }
    }

    /// What was checked as one configuration, and the verb.
    fn subject(&self) -> String {
        let names: Vec<_> = self.files.iter().map(|path| named::told(path)).collect();
        match names.is_empty() {
            true => "the kernel command line is".to_owned(),
            false => format!("{} with the kernel command line are", names.join(", ")),
        }
    }
}

fn refuse(what: String) -> anyhow::Error {
    Failure::new(Class::Invalid, what).into()
}

/// `2 mistakes and 1 warning in the configuration`.
fn count(found: &Invalid) -> String {
    let words = |count: usize, noun: &str| match count {
        0 => None,
        1 => Some(format!("1 {noun}")),
        count => Some(format!("{count} {noun}s")),
    };
    let parts = [words(found.errors(), "mistake"), words(found.warnings(), "warning")];
    format!("{} in the configuration", parts.into_iter().flatten().collect::<Vec<_>>().join(" and "))
}

fn unreadable_file(name: &str, error: &anyhow::Error) -> Diagnostic {
    let message = if Path::new(name).is_dir() {
        format!("this is a directory; give the files in it, such as {name}/*.yaml")
    } else {
        error.root_cause().to_string()
    };
    Diagnostic::of_file(name, "unreadable-file", message)
}

/// The diagnostics of an install configuration, and a summary of it.
fn diagnose(path: &Path) -> (Vec<Diagnostic>, String) {
    let name = named::told(path);
    let told = match named::read_text(path) {
        Err(error) => vec![unreadable_file(&name, &error)],
        Ok(text) => match config::check(&text, &name) {
            Ok(accepted) => accepted.warnings,
            Err(invalid) => invalid.0,
        },
    };
    (told, String::new())
}

/// The diagnostics of a cluster file, and a summary of it.
fn diagnose_cluster(path: &Path) -> (Vec<Diagnostic>, String) {
    let name = named::told(path);
    match named::read_text(path) {
        Err(error) => (vec![unreadable_file(&name, &error)], String::new()),
        Ok(text) => match cluster_file::check(&text, &name) {
            Ok(checked) => {
                let what = format!(": {}", checked.summary());
                (checked.warnings, what)
            }
            Err(invalid) => (invalid.0, String::new()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;

    fn validate(files: Vec<PathBuf>, cluster: Option<PathBuf>, strict: bool) -> ValidateArgs {
        ValidateArgs { files, cluster, strict, show_sources: false, cmdline: None }
    }

    fn judge(text: &str, strict: bool) -> (String, Result<()>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        std::fs::write(&path, text).unwrap();
        validate(vec![path], None, strict).judge(Format::Text).unwrap()
    }

    #[test]
    fn a_cluster_file_is_judged_as_a_document_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster.yaml");
        let judge = |text: &str, strict, format| {
            std::fs::write(&path, text).unwrap();
            validate(vec![], Some(path.clone()), strict).judge(format).unwrap()
        };
        let machines = "cluster: {name: a, install: {vip: 192.0.2.9}}\npools: [{name: p, role: management, machines: \
                        [{hostname: a}, {hostname: b}, {hostname: c}]}]\n";
        let (output, result) = judge(machines, true, Format::Text);
        let what = "cluster.yaml is valid: the cluster `a`, 3 management nodes; a creates it\n";
        assert!(result.is_ok() && output.ends_with(what), "{output} {result:?}");
        let two = machines.replace(", {hostname: c}", "");
        assert!(judge(&two, false, Format::Text).1.is_ok() && judge(&two, true, Format::Text).1.is_err());
        let (output, result) = judge(&machines.replace("hostname: b", "hostname: a"), false, Format::Json);
        assert_eq!(class_of(&result.unwrap_err()), Class::Invalid);
        let told: serde_json::Value = serde_json::from_str(&output).unwrap();
        assert_eq!((&told[0]["code"], &told[0]["line"]), (&"duplicate-name".into(), &2.into()));
    }

    #[test]
    fn a_kernel_command_line_is_checked_alone() {
        let check = |line: &str, strict| {
            let cmdline = Some(line.to_owned());
            let validation = ValidateArgs { cmdline, ..validate(vec![], None, strict) };
            validation.merge(&Context::silent(Format::Text))
        };
        check("quiet nqrust.install.device=/dev/disk/by-id/ata-one", true).unwrap();
        // The rest is not known.
        let url = "harvester.install.automatic=true harvester.install.config_url=http://192.0.2.1/a.yaml";
        check(url, false).unwrap();
        for wrong in ["nqrust.install.devise=/dev/sda", &format!("{url} nqrust.install.role=boss")] {
            assert_eq!(class_of(&check(wrong, false).unwrap_err()), Class::Invalid, "{wrong}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("line");
        std::fs::write(&path, "nqrust.install.devise=/dev/sda\n").unwrap();
        let error = check(&format!("@{}", path.display()), false).unwrap_err();
        assert!(
            error.to_string().contains("try: device") || format!("{error:#}").contains("devise"),
            "{error:#}"
        );
        assert!(check("@/nonexistent/line", false).is_err());
    }

    #[test]
    fn warnings_pass_unless_strict() {
        let warned = "install: {silent: true}\n";
        let (output, result) = judge(warned, false);
        assert!(result.is_ok() && output.contains("[superfluous-key]") && output.ends_with(" is valid\n"));
        let (output, result) = judge(warned, true);
        let error = result.unwrap_err();
        assert_eq!((output.as_str(), class_of(&error)), ("", Class::Invalid));
        assert!(format!("{error:#}").contains("1 warning in the configuration"), "{error:#}");
        assert!(judge("os: {hostname: a}\n", true).1.is_ok());
        let both = judge("install: {silent: true, colour: red}\n", false).1.unwrap_err();
        assert!(format!("{both:#}").contains("1 mistake and 1 warning"), "{both:#}");
    }
}
