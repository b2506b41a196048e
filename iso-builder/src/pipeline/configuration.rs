//! The configurations that media carry. One that an install would refuse must not be put on a medium.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::failure::{Class, Classify, Failure};
use base::files;
use model::config::sources::state::refusal;
use model::config::sources::{Document, SourceKind, check_partial, combine};
use model::config::{BootPassword, Distribution, InstallConfig};
use model::release::{Payload, Purpose};
use serde_json::json;

use crate::definition::{Definition, LoadedDefinition, OutputKind};

/// The path of the boot menu's password on a medium.
const MENU_PASSWORD_FILE: &str = "boot/grub/password.cfg";

/// The payloads of `install_defaults` and `install_config`, checked, with the files that hold them. If the latter sets
/// a password for the boot menu, one more payload is written into `scratch`: GRUB reads the password from a file of its
/// own.
///
/// Defaults are checked key by key, because another source completes them. `install_config` has to be complete together
/// with them.
pub(super) fn payloads(loaded: &LoadedDefinition, scratch: &Path) -> Result<Vec<(Payload, PathBuf)>> {
    let definition = &loaded.definition;
    let parts = ConfigurationPart::read(loaded, definition.install_config.as_deref())?;
    let mut payloads = Vec::new();
    for ConfigurationPart { file, kind, .. } in &parts {
        let (path, purpose) = match kind {
            SourceKind::Defaults => ("config/defaults.yaml", Purpose::InstallDefaults),
            _ => ("config/install.yaml", Purpose::InstallConfig),
        };
        let (sha256, size) = crate::files::digest_of_file(file)?;
        payloads.push((Payload { path: path.into(), purpose, size, sha256 }, file.clone()));
    }
    if let Some(password) = check(documents(&parts))? {
        let source = scratch.join("password.cfg");
        fs::write(&source, password.grub_command())
            .with_context(|| format!("writing {}", source.display()))?;
        let (sha256, size) = crate::files::digest_of_file(&source)?;
        payloads.push((
            Payload { path: MENU_PASSWORD_FILE.into(), purpose: Purpose::BootPassword, size, sha256 },
            source,
        ));
    }
    check_distribution(definition, &parts)?;
    Ok(payloads)
}

/// A file with a part of the configuration that a definition names.
struct ConfigurationPart {
    file: PathBuf,
    kind: SourceKind,
    text: String,
}

impl ConfigurationPart {
    /// Reads `install_defaults` of a definition and the `embedded` configuration, the weaker first.
    fn read(loaded: &LoadedDefinition, embedded: Option<&Path>) -> Result<Vec<Self>> {
        let defaults = loaded.definition.install_defaults.as_deref();
        let named = [(defaults, SourceKind::Defaults), (embedded, SourceKind::Embedded)];
        let read = |(file, kind): (Option<&Path>, SourceKind)| {
            let file = loaded.resolve(file?);
            let what = || format!("reading the configuration {}", file.display());
            let text = files::read_text(&file).class(Class::Invalid, what);
            Some(text.map(|text| Self { file, kind, text }))
        };
        named.into_iter().filter_map(read).collect()
    }
}

fn documents(parts: &[ConfigurationPart]) -> Vec<Document> {
    let document = |part: &ConfigurationPart| {
        Document::yaml(part.kind, part.file.display().to_string(), part.text.clone())
    };
    parts.iter().map(document).collect()
}

/// Checks that the disk can be made, if one is: the installer, which reads its configuration, begins when all else is done.
pub(super) fn disk(loaded: &LoadedDefinition, outputs: &BTreeSet<OutputKind>) -> Result<()> {
    let definition = &loaded.definition;
    if !outputs.iter().any(|kind| kind.is_disk()) {
        return Ok(());
    }
    if definition.images.unpack {
        let what = "disk-raw and disk-qcow2 cannot be made with images.unpack, which takes the containerd of a machine";
        return Err(Failure::new(Class::Invalid, what)
            .hint("Leave out images.unpack, or the disks of outputs.")
            .into());
    }
    let Some(file) = &definition.disk.config else { return Ok(()) };
    let parts = ConfigurationPart::read(loaded, Some(file))?;
    let mut documents = documents(&parts);
    // The install into the disk is unattended, so a missing answer is an error.
    documents.push(Document::answers(&json!({ "install": { "automatic": true } })));
    combine(&documents).map_err(refusal)?;
    check_distribution(definition, &parts)
}

/// The warning where the embedded configuration installs unattended from a net-install medium, and the nodes need images that the
/// builder made: no registry has them.
pub(super) fn unreachable_images(
    loaded: &LoadedDefinition,
    outputs: &BTreeSet<OutputKind>,
) -> Option<String> {
    let definition = &loaded.definition;
    let repositories = definition.images.built().map(|image| image.name.repository());
    let own: Vec<_> = repositories.filter(|repository| repository.registry() == "localhost").collect();
    if own.is_empty() || !outputs.contains(&OutputKind::NetInstall) {
        return None;
    }
    let config = embedded(loaded).ok().flatten()?;
    let install = &config.install;
    let is_told = install.medium.is_some() || install.iso_url.is_some();
    if !install.automatic || is_told || config.node_registries().mirrors.contains_key("localhost") {
        return None;
    }
    let names: Vec<_> = own.iter().map(ToString::to_string).collect();
    Some(format!(
        "the net-install medium lacks the images that are made here ({}), no registry has them, and its configuration installs \
         without asking: set `install.medium` to the URL of the full medium, or leave net-install out of `outputs`",
        names.join(", ")
    ))
}

/// The configuration that the media of a definition have; none where they have none.
fn embedded(loaded: &LoadedDefinition) -> Result<Option<InstallConfig>> {
    let Some(file) = &loaded.definition.install_config else { return Ok(None) };
    let parts = ConfigurationPart::read(loaded, Some(file))?;
    // Mistakes in them are reported when they become payloads.
    Ok(combine(&documents(&parts)).ok().map(|combined| combined.config))
}

/// The manifests that the embedded configuration adds to the cluster, with a name for messages.
pub(super) fn manifests(loaded: &LoadedDefinition) -> Result<Vec<(PathBuf, String)>> {
    let Some(file) = &loaded.definition.install_config else { return Ok(Vec::new()) };
    let Some(config) = embedded(loaded)? else { return Ok(Vec::new()) };
    let file = loaded.resolve(file);
    let named = |manifest: model::config::Manifest| {
        (
            PathBuf::from(format!("{} (kubernetes.manifests, {})", file.display(), manifest.name)),
            manifest.content.to_string(),
        )
    };
    Ok(config.kubernetes.manifests.into_iter().map(named).collect())
}

/// Fails if nodes would by default look for another distribution than the one in the image. `parts` are those of their
/// configuration, the weakest first.
fn check_distribution(definition: &Definition, parts: &[ConfigurationPart]) -> Result<()> {
    let Some(brought) = definition.kubernetes.as_ref().map(|kubernetes| kubernetes.distribution) else {
        return Ok(());
    };
    let named = |part: &ConfigurationPart| {
        let value: serde_json::Value = serde_saphyr::from_str(&part.text).ok()?;
        value["kubernetes"]["distribution"].as_str().map(str::to_owned)
    };
    let default = Distribution::default().name().to_owned();
    let chosen = parts.iter().filter_map(named).next_back().unwrap_or(default);
    if chosen == brought.name() {
        return Ok(());
    }
    let what =
        format!("the image contains {}, but its installs would set up nodes of {chosen}", brought.name());
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!(
            "kubernetes.distribution of an install configuration is {chosen} by default"
        ))
        .hint(format!(
            "Set `kubernetes: {{distribution: {}}}` in the file that install_defaults names.",
            brought.name()
        ))
        .into())
}

/// Returns the password of the boot menu of a medium with these configurations: a menu has one only if a complete
/// configuration is on the medium.
fn check(mut documents: Vec<Document>) -> Result<Option<BootPassword>> {
    let whole = documents.iter().any(|document| document.kind() == SourceKind::Embedded);
    let checked = match documents.pop() {
        None => Ok(None),
        Some(only) if !whole => check_partial(only).map(|()| None),
        Some(last) => {
            documents.push(last);
            combine(&documents).map(|combined| combined.config.os.boot_password)
        }
    };
    checked.map_err(|invalid| {
        let what = format!("a configuration for the media has mistakes\n{invalid}");
        Failure::new(Class::Invalid, what).places(&invalid.0).because(invalid).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(defaults: Option<&str>, config: Option<&str>) -> Option<String> {
        let parts = [(defaults, SourceKind::Defaults), (config, SourceKind::Embedded)];
        let documents = parts
            .into_iter()
            .filter_map(|(text, kind)| text.map(|text| Document::yaml(kind, format!("{kind:?}"), text)));
        check(documents.collect()).err().map(|error| error.to_string())
    }

    #[test]
    fn installs_make_nodes_of_the_distribution_that_the_image_brings() {
        let definition = |kubernetes: &str| {
            let text =
                format!("{{id: a, name: a, version: '1', base: {{directory: {{path: .}}}}{kubernetes}}}");
            serde_saphyr::from_str::<Definition>(&text).unwrap()
        };
        let none = definition("");
        let rke2 = definition(", kubernetes: {distribution: rke2, version: v1.33.1+rke2r1}");
        let k3s = definition(", kubernetes: {distribution: k3s, version: v1.33.1+k3s1}");
        let (of_rke2, of_k3s) = ("kubernetes: {distribution: rke2}", "kubernetes: {distribution: k3s}");
        for (definition, texts, fits) in [
            (&none, &[of_k3s][..], true),
            (&rke2, &[], true),
            (&rke2, &["os: {}"], true),
            (&rke2, &[of_k3s], false),
            (&rke2, &[of_k3s, of_rke2], true),
            (&k3s, &[], false),
            (&k3s, &["kubernetes: {}"], false),
            (&k3s, &[of_k3s], true),
            (&k3s, &[of_k3s, "os: {}"], true),
            (&k3s, &[of_k3s, of_rke2], false),
        ] {
            let part = |text: &&str| ConfigurationPart {
                file: PathBuf::from("node.yaml"),
                kind: SourceKind::Embedded,
                text: (*text).to_owned(),
            };
            let parts: Vec<_> = texts.iter().map(part).collect();
            assert_eq!(check_distribution(definition, &parts).is_ok(), fits, "{texts:?}");
        }
        let told = base::failure::render(&check_distribution(&k3s, &[]).unwrap_err());
        assert!(
            told.contains("contains k3s") && told.contains("`kubernetes: {distribution: k3s}`"),
            "{told}"
        );
    }

    #[test]
    fn a_boot_password_of_the_configuration_becomes_a_file_for_grub_and_one_of_the_defaults_alone_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let hash = format!("grub.pbkdf2.sha512.10000.{}.{}", "AB".repeat(64), "CD".repeat(64));
        let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        file("defaults.yaml", &format!("os: {{password: correct horse, boot_password: {hash}}}\n"));
        file(
            "config.yaml",
            "token: shared-by-all-of-its-nodes\ninstall: {automatic: true, vip: 192.0.2.10}\n",
        );
        let made = |with: &str| {
            let text = format!(
                "{{id: a, name: a, version: '1', base: {{directory: {{path: .}}}}, install_defaults: defaults.yaml{with}}}"
            );
            file("image.yaml", &text);
            let loaded = LoadedDefinition::read(&directory.path().join("image.yaml")).unwrap();
            payloads(&loaded, directory.path()).unwrap()
        };
        let purposes =
            |made: &[(Payload, PathBuf)]| made.iter().map(|(payload, _)| payload.purpose).collect::<Vec<_>>();
        assert_eq!(purposes(&made("")), [Purpose::InstallDefaults]);
        let whole = made(", install_config: config.yaml");
        assert_eq!(
            purposes(&whole),
            [Purpose::InstallDefaults, Purpose::InstallConfig, Purpose::BootPassword]
        );
        let text = fs::read_to_string(&whole[2].1).unwrap();
        assert_eq!(
            (text.as_str(), whole[2].0.path.as_str()),
            (&*format!("password_pbkdf2 root {hash}\n"), MENU_PASSWORD_FILE)
        );
    }

    #[test]
    fn defaults_may_be_a_part_and_a_configuration_is_whole_together_with_them() {
        let half = "token: shared-by-all-of-its-nodes\ninstall: {automatic: true, vip: 192.0.2.10}\n";
        let login = "os: {password: correct horse}\n";
        assert_eq!(told(None, None), None);
        assert_eq!(told(Some(half), None), None);
        assert!(told(None, Some(half)).unwrap().contains("no-login"));
        assert_eq!(told(Some(login), Some(half)), None);
        assert!(told(Some("os: {hostnam: x}\n"), None).unwrap().contains("Defaults:1:6"));
    }

    #[test]
    fn a_disk_has_a_whole_configuration_or_none_and_no_images_that_a_machine_would_unpack() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let told = |rest: &str, outputs: &[OutputKind]| {
            file(
                "image.yaml",
                &format!("{{id: a, name: a, version: '1', base: {{directory: {{path: .}}}}{rest}}}"),
            );
            let loaded = LoadedDefinition::read(&directory.path().join("image.yaml")).unwrap();
            disk(&loaded, &outputs.iter().copied().collect()).err().map(|error| base::failure::render(&error))
        };
        let raw = [OutputKind::DiskRaw];
        file("node.yaml", "token: shared-by-all-of-its-nodes\ninstall: {vip: 192.0.2.10}\n");
        file("login.yaml", "os: {password: correct horse}\n");
        let named = ", disk: {config: node.yaml}";
        assert!(told(named, &raw).unwrap().contains("no-login"));
        assert_eq!(told(named, &OutputKind::MEDIA), None);
        assert_eq!(told(&format!("{named}, install_defaults: login.yaml"), &raw), None);
        assert_eq!(told("", &raw), None);
        assert!(told(", images: {unpack: true}", &raw).unwrap().contains("images.unpack"));
    }

    #[test]
    fn an_automatic_net_install_that_lacks_images_of_no_registry_is_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let node = "token: shared-by-all-of-its-nodes\nos: {password: correct horse}\n";
        let built = "images: {preload: [{name: localhost/a:1, layers: [{packages: [dash]}]}]}";
        let warned = |more: &str, definition: &str, outputs: &[OutputKind]| {
            file("node.yaml", &format!("{node}{more}"));
            let text = format!(
                "{{id: a, name: a, version: '1', base: {{directory: {{path: .}}}}, install_config: node.yaml, {definition}}}"
            );
            file("image.yaml", &text);
            let loaded = LoadedDefinition::read(&directory.path().join("image.yaml")).unwrap();
            assert!(embedded(&loaded).unwrap().is_some(), "{more}");
            unreachable_images(&loaded, &outputs.iter().copied().collect())
        };
        let automatic = "install: {automatic: true, vip: 192.0.2.10, management_interface: {interfaces: [{name: ens3}]}}\n";
        let media = OutputKind::MEDIA;
        assert!(warned(automatic, built, &media).unwrap().contains("localhost/a"));
        assert_eq!(warned(automatic, built, &[OutputKind::Full]), None);
        assert_eq!(warned(automatic, &built.replace("localhost", "registry.example.org"), &media), None);
        for more in [
            automatic.replace("automatic: true", "automatic: true, medium: 'https://a.example.org/a.iso'"),
            automatic.replace("automatic: true, ", ""),
            format!(
                "{automatic}registries: {{mirrors: {{localhost: {{endpoint: ['https://a.example.org']}}}}}}\n"
            ),
        ] {
            assert_eq!(warned(&more, built, &media), None, "{more}");
        }
    }
}
