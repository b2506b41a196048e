//! `installer verify`.

use std::io::{self, Read};
use std::path::Path;

use anyhow::Result;

use crate::app::consoles;
use crate::app::gather::{self, UnsignedArgs};
use base::failure::{Class, Failure, class_of};
use base::program::Context;
use base::progress::Progress;
use medium::build_output::BuildOutput;
use medium::customization::{AreaDamage, FILE, GRUB_FILE, area, argument};
use medium::iso::CheckScope;
use medium::payload_sources::{
    JudgedRelease, LocalMedium, MediumComparison, PayloadSource, VerifyingReader, changed, compare, is_url,
    read_release, source,
};
use model::release::{Payload, Release};
use transfer::download::{RetryPolicy, is_absent};

/// Compare a medium with its state when it was built, and name every difference: every byte of an ISO, every payload
/// of a directory or a server.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// An ISO, a drive that holds one, a directory with release.json, the URL of an ISO or of such a directory, or oci:DIRECTORY
    /// for a release in an OCI layout; by default the medium that this system runs from.
    medium: Option<String>,
    /// The same by its former name.
    #[arg(long = "medium", value_name = "MEDIUM", hide = true, conflicts_with = "medium")]
    named: Option<String>,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
    #[command(flatten)]
    unsigned: UnsignedArgs,
}

impl VerifyArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        verify_medium(self.medium.or(self.named).as_deref(), self.consoles, self.unsigned, context)
    }
}

/// Verifies the medium at `named`, or the one that this system runs from; with `on_consoles` progress and failures are shown on
/// every console of the machine too.
fn verify_medium(
    named: Option<&str>,
    on_consoles: bool,
    unsigned: UnsignedArgs,
    context: &Context,
) -> Result<()> {
    consoles::with(on_consoles, &context.progress, || {
        let directory = named.filter(|named| !is_url(named)).map(Path::new);
        if let Some(output) = directory.map(BuildOutput::open).transpose()?.flatten() {
            return verify_output(&output, unsigned, context);
        }
        let source = source(named, &[], RetryPolicy::attended())?;
        let judged = unsigned
            .policy()
            .system_store()
            .and_then(|store| read_release(source.as_ref(), gather::expected()?, &store));
        let result = judged.and_then(|judged| {
            tell_trust(&judged, context);
            verify(source.as_ref(), &judged.release, &context.progress)
        });
        match &result {
            Ok(()) => context.progress.finish("The medium is good", 0),
            Err(error) => {
                context.progress.finish("The medium is not good", class_of(error).exit_code());
            }
        }
        result
    })
}

/// Says who has signed the release.
fn tell_trust(judged: &JudgedRelease, context: &Context) {
    let JudgedRelease { release, trust } = judged;
    let text = format!("{} {} is {trust}", release.name, release.version);
    match trust.needs_warning() {
        true => context.progress.warn("verify", &text),
        false => context.progress.note("verify", text),
    }
}

fn verify_output(output: &BuildOutput, unsigned: UnsignedArgs, context: &Context) -> Result<()> {
    let judged = read_release(&LocalMedium::new(output.path()), None, &unsigned.policy().system_store()?)?;
    tell_trust(&judged, context);
    let report = output.verify(&context.progress)?;
    context.show(&report, || report.to_string())?;
    report.into_result()
}

/// Compares everything that the medium must hold: every byte of an ISO, every payload of anything else. Damage does not end the
/// comparison; an error of a server does.
fn verify(source: &dyn PayloadSource, release: &Release, progress: &Progress) -> Result<()> {
    match compare(source, release, CheckScope::Whole, Some((progress, "verify")), &|| Ok(()))? {
        MediumComparison::Image(differences) if differences.is_empty() => Ok(()),
        MediumComparison::Image(differences) => Err(changed(source, &differences).into()),
        MediumComparison::NoImage => verify_files(source, release, progress),
        MediumComparison::OtherRecipe => {
            let text = "another version of iso-builder made the medium; its boot files are not checked";
            progress.note("verify", format!("warning: {text}"));
            verify_files(source, release, progress)
        }
    }
}

fn verify_files(source: &dyn PayloadSource, release: &Release, progress: &Progress) -> Result<()> {
    let here = |payload: &&Payload| {
        // A net-install medium leaves some payloads to a server, and a file or a directory of its own need not have them. A
        // server is asked for all.
        !payload.is_remote_on(release.medium) || source.place(payload).is_some()
    };
    let payloads: Vec<_> = release.all_payloads().filter(here).collect();
    let total = payloads.iter().map(|payload| payload.size).sum();
    let mut step = progress.step("verify", format!("Checking {}", source.describe()), Some(total));
    let (mut damaged, mut absent) = (Vec::new(), 0);
    for payload in &payloads {
        let checked = source.open(payload).and_then(|reader| {
            let mut reader = VerifyingReader::new(step.reader(reader), payload, source.describe());
            Ok(io::copy(&mut reader, &mut io::sink())?)
        });
        match checked {
            Ok(_) => {}
            Err(error) if is_damage(&error) => damaged.push(named(&payload.path, &error)),
            Err(error) if is_absent(&error) => {
                absent += usize::from(payload.is_remote_on(release.medium));
                damaged.push(named(&payload.path, &error));
            }
            Err(error) => return Err(error),
        }
    }
    let customized = check_customization(source)?;
    if damaged.is_empty() && customized.is_empty() {
        step.done();
        return Ok(());
    }
    drop(step);
    let (what, hint) = match damaged.len() {
        0 => (
            "the customization of the medium is damaged".to_owned(),
            "Run `iso-builder customize` on the medium again, or with --reset.",
        ),
        count if count == absent => (
            format!(
                "{count} of {} payloads are missing: the server has a net-install medium",
                payloads.len()
            ),
            "Serve a full ISO of the same release, or let the machines reach the registries of the container images.",
        ),
        count => (
            format!("{count} of {} payloads are damaged or missing", payloads.len()),
            "Write the medium again from a checked file, or use another one.",
        ),
    };
    damaged.extend(customized);
    Err(Failure::new(Class::Verification, what)
        .because(anyhow::anyhow!("{}", damaged.join("\n           ")))
        .hint(hint)
        .into())
}

/// Whether the medium itself is damaged, not the access to it.
fn is_damage(error: &anyhow::Error) -> bool {
    matches!(class_of(error), Class::Verification | Class::DiskIo)
}

fn named(path: &str, error: &anyhow::Error) -> String {
    format!("{path} ({})", error.root_cause())
}

/// The damage in the customization, which has a digest of its own, and in the kernel arguments that GRUB reads beside it.
fn check_customization(source: &dyn PayloadSource) -> Result<Vec<String>> {
    let Some(area) = source.beside(FILE)? else { return Ok(Vec::new()) };
    let content = match area::read(area) {
        Ok(content) => content.unwrap_or_default(),
        Err(AreaDamage::Read(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
            let error = anyhow::Error::from(error);
            return if is_damage(&error) { Ok(vec![named(FILE, &error)]) } else { Err(error) };
        }
        Err(damage) => return Ok(vec![format!("{FILE} ({:#})", anyhow::Error::from(damage))]),
    };
    let Some(grub) = source.beside(GRUB_FILE)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    // One byte more shows that it is too long.
    grub.take(argument::GRUB_LENGTH as u64 + 1).read_to_end(&mut found)?;
    let same = argument::grub(&content.arguments, content.boot_password.as_ref())
        .is_ok_and(|wanted| wanted == found);
    let differs = || format!("{GRUB_FILE} (it does not have the kernel arguments that {FILE} has)");
    Ok((!same).then(differs).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;
    use medium::customization::Content;
    use model::config::Secret;
    use testing::release::{contents, release};

    /// A directory with all payloads.
    fn whole() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (payload, bytes) in contents() {
            let path = directory.path().join(&payload.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        directory
    }

    #[test]
    fn what_a_medium_was_customized_with_is_checked_too() {
        let directory = whole();
        let nodes = [("default.yaml".to_owned(), Secret::new("password: a-secret-password\n"))].into();
        let content = Content { nodes, arguments: vec!["quiet".parse().unwrap()], ..Content::default() };
        let good = area::bytes(&content).unwrap();
        let grub = argument::grub(&content.arguments, None).unwrap();
        let plain = argument::grub(&[], None).unwrap();
        std::fs::create_dir_all(directory.path().join(GRUB_FILE).parent().unwrap()).unwrap();
        let mut changed = good.clone();
        changed[area::HEADER + 600] ^= 1;
        for (area, grub, found) in [
            (&good[..], &grub[..], None),
            (&[0; area::HEADER], &plain, None),
            (&changed, &grub, Some("custom.img (its archive, from byte 4096 on, has the SHA-256 ")),
            (&good[..good.len() - 1], &grub, Some("custom.img (")),
            (&area::unfinished(), &plain, Some("custom.img (it was not written to its end)")),
            (&good, &plain, Some("boot/grub/custom.cfg (it does not have the kernel arguments")),
            (&[0; area::HEADER], &grub, Some("boot/grub/custom.cfg (it does not have the kernel arguments")),
        ] {
            std::fs::write(directory.path().join(FILE), area).unwrap();
            std::fs::write(directory.path().join(GRUB_FILE), grub).unwrap();
            let checked = verify(&LocalMedium::new(directory.path()), &release(), &Progress::silent());
            let Some(found) = found else {
                checked.unwrap();
                continue;
            };
            let error = checked.unwrap_err();
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Verification, "{text}");
            assert!(text.contains(found) && text.contains("iso-builder customize"), "{found} in {text}");
            assert!(!text.contains("a-secret-password"), "{text}");
        }
    }

    #[test]
    fn every_changed_part_of_an_iso_is_named() {
        use testing::iso::{find, image, release};
        let (directory, release) = (whole(), release());
        std::fs::write(directory.path().join("release.json"), release.to_bytes()).unwrap();
        let file = directory.path().join("medium.iso");
        let medium = LocalMedium::with_image(directory.path(), &file);
        let mut image = image(&release);
        std::fs::write(&file, &image).unwrap();
        verify(&medium, &release, &Progress::silent()).unwrap();
        let last = image.len() - 20_000;
        for at in [find(&image, "rd.shell=0") + 9, find(&image, "set prefix"), find(&image, "EFI PART"), last]
        {
            image[at] ^= 1;
        }
        std::fs::write(&file, &image).unwrap();
        let error = verify(&medium, &release, &Progress::silent()).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification, "{text}");
        for part in [
            "GUID partition table: ",
            "boot/grub/grub.cfg: ",
            "EFI/debian/grub.cfg: ",
            "padding after EFI system partition: ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn of_a_net_install_medium_a_server_is_asked_for_the_images_too() {
        use medium::payload_sources::HttpMedium;
        use model::release::{MediumKind, Purpose};
        use testing::http::{Answer, Fake};
        let directory = whole();
        let release = Release { medium: MediumKind::NetInstall, ..release() };
        let root = directory.path().to_owned();
        let server = Fake::start(move |request| {
            match std::fs::read(root.join(request.path.trim_start_matches('/'))) {
                Ok(content) => Answer::range(&content, request),
                Err(_) => Answer::new(404, b""),
            }
        });
        let served = HttpMedium::open(&server.url(), &[], RetryPolicy::default()).unwrap();
        verify(&served, &release, &Progress::silent()).unwrap();
        let blobs: Vec<_> = release.payloads(Purpose::ImageBlob).collect();
        blobs.iter().for_each(|blob| std::fs::remove_file(directory.path().join(&blob.path)).unwrap());
        let error = verify(&served, &release, &Progress::silent()).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification, "{text}");
        assert!(text.contains("are missing: the server has a net-install medium"), "{text}");
        assert!(text.contains("Serve a full ISO"), "{text}");
        assert!(blobs.iter().all(|blob| text.contains(&blob.path)), "{text}");
        // On a drive the images are left to registries.
        verify(&LocalMedium::new(directory.path()), &release, &Progress::silent()).unwrap();
    }

    #[test]
    fn every_damaged_payload_is_named() {
        let directory = whole();
        let medium = LocalMedium::new(directory.path());
        verify(&medium, &release(), &Progress::silent()).unwrap();
        std::fs::write(directory.path().join("live/initrd"), b"short").unwrap();
        std::fs::remove_file(directory.path().join("images/metadata/default.db")).unwrap();
        let error = verify(&medium, &release(), &Progress::silent()).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification);
        assert!(text.contains("2 of 15 payloads"), "{text}");
        assert!(text.contains("live/initrd") && text.contains("images/metadata/default.db"), "{text}");
    }
}
