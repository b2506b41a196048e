//! `installer convert`: configurations of the reference product as configurations of ours.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use base::failure::{Class, Classify, Failure};
use base::files::{self, named};
use base::program::Context;
use model::config::convert::{self, Change, ChangeKind, ConvertedDocument};

/// Make an install configuration of one of Harvester.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConvertArgs {
    /// A configuration of any version, the file that a Harvester node keeps (`/oem/harvester.config`), or stages of its
    /// system; `-` is standard input.
    #[arg(value_name = "FILE or -")]
    file: PathBuf,
    /// The file for the configuration, which gets mode 0600 as it holds secrets; `-` is standard output. A file with other
    /// content stays as it is.
    #[arg(short, long, value_name = "FILE or -", default_value = "-")]
    output: PathBuf,
    /// FILE has a kernel command line, or is a script of iPXE, GRUB or PXELINUX that gives one.
    #[arg(long)]
    cmdline: bool,
}

const EXAMPLES: &str = "Examples:
  installer convert config-create.yaml -o node-1.yaml
  ssh rancher@192.0.2.41 sudo cat /oem/harvester.config | installer convert -
  installer convert --cmdline boot.ipxe";

/// Configurations hold secrets.
const MODE: u32 = 0o600;

impl ConvertArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let name = named::told(&self.file);
        let text =
            named::read_text(&self.file).class(Class::Invalid, || format!("reading {name} to convert it"))?;
        let is_line = self.cmdline || convert::is_boot_line(&text);
        let convert = if is_line { convert::command_line } else { convert::document };
        let converted =
            convert(&text, &name).map_err(|invalid| invalid.failure(&format!("converting {name}")))?;
        let is_written = self.write(&converted)?;
        for change in converted.changes.iter().filter(|change| change.kind == ChangeKind::Lost) {
            context.progress.note("convert", told(&name, change));
        }
        context.progress.note("convert", summary(&converted.changes));
        context.show(&self.result(&converted), || match is_written {
            _ if named::is_standard(&self.output) => converted.text.clone(),
            true => format!("written   {}", self.output.display()),
            false => format!("unchanged {}", self.output.display()),
        })
    }

    /// Writes the configuration, unless it goes to standard output; whether the file was another before.
    fn write(&self, converted: &ConvertedDocument) -> Result<bool> {
        if named::is_standard(&self.output) {
            return Ok(false);
        }
        let doing = || format!("writing {}", self.output.display());
        match std::fs::read(&self.output) {
            Ok(bytes) if bytes == converted.text.as_bytes() => return Ok(false),
            Ok(_) => {
                let what = format!("{} is there already, with other content", self.output.display());
                return Err(Failure::new(Class::Invalid, what)
                    .hint("Remove it, or give another file for the configuration.")
                    .into());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).class(Class::Invalid, doing),
        }
        files::write_atomically(&self.output, converted.text.as_bytes(), MODE).class(Class::DiskIo, doing)?;
        Ok(true)
    }

    /// The result for programs; it has the configuration itself only where standard output gets it.
    fn result(&self, converted: &ConvertedDocument) -> serde_json::Value {
        let standard = named::is_standard(&self.output);
        json!({
            "output": (!standard).then(|| self.output.display().to_string()),
            "document": standard.then_some(&converted.text),
            "changes": converted.changes,
            "warnings": converted.warnings,
        })
    }
}

fn told(name: &str, change: &Change) -> String {
    format!("{name}:{}: {}", change.line, change.message)
}

fn summary(changes: &[Change]) -> String {
    let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
    let [changed, dropped, lost] = [ChangeKind::Changed, ChangeKind::Dropped, ChangeKind::Lost].map(count);
    match changes.is_empty() {
        true => "the configuration needs no conversion and stays as it is".to_owned(),
        false => format!(
            "{changed} changed, {dropped} dropped because they change nothing, {lost} left out because there is no \
             equivalent"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use base::program::Format;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const STORED: &str =
        "serverurl: \"\"\ntoken: 9c41d7e05b6f4a3280de\nos: {hostname: a}\ninstall: {forcembr: false}\n";

    fn run(file: &Path, output: &Path, format: Format) -> Result<()> {
        let conversion = ConvertArgs { file: file.to_owned(), output: output.to_owned(), cmdline: false };
        conversion.run(&Context::silent(format))
    }

    #[test]
    fn a_file_of_secrets_is_for_its_owner_and_never_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let (file, output) = (directory.path().join("harvester.config"), directory.path().join("node.yaml"));
        std::fs::write(&file, STORED).unwrap();
        run(&file, &output, Format::Text).unwrap();
        run(&file, &output, Format::Json).unwrap();
        let text = std::fs::read_to_string(&output).unwrap();
        assert!(text.contains("token: 9c41d7e05b6f4a3280de"), "{text}");
        assert_eq!(std::fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&output, "os: {hostname: other}\n").unwrap();
        let error = run(&file, &output, Format::Text).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("there already"), "{}", render(&error));
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "os: {hostname: other}\n");
    }

    #[test]
    fn secrets_are_in_no_message() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("harvester.config");
        let text = STORED.replace("hostname: a", "hostname: a b");
        let text = format!("{text}systemsettings: {{nonsense: hunter2}}\nwifi: hunter2\n");
        std::fs::write(&file, text).unwrap();
        let error = run(&file, &directory.path().join("out"), Format::Text).unwrap_err();
        let told = render(&error);
        assert!(!told.contains("hunter2") && !told.contains("9c41d7e05b6f4a3280de"), "{told}");
    }

    #[test]
    fn the_result_for_programs_says_what_became_of_each_key() {
        let converted = convert::document(STORED, "f").unwrap();
        let conversion = ConvertArgs { file: "f".into(), output: "o".into(), cmdline: false };
        let result = conversion.result(&converted);
        assert!(
            result["document"].is_null() && !result.to_string().contains("9c41d7e05b6f4a3280de"),
            "{result}"
        );
        assert_eq!(result["changes"][0]["kind"], "dropped");
        assert!(
            summary(&converted.changes).starts_with("0 changed, 2 dropped"),
            "{}",
            summary(&converted.changes)
        );
    }
}
