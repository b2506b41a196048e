//! Chart archives: reading them, packing them so that the same files give the same bytes, and wrapping them into the
//! objects by which RKE2 and K3s install them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::failure::{Class, Classify, Failure};
use base::files;
use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use walkdir::WalkDir;

use super::helm::Helm;
use super::spec::ChartSpec;
use crate::archive::members::inside;
use crate::archive::{ArchiveMembers, MemberKind};

/// In bytes. The distributions keep a chart's archive, in base64, in one object of 1 MiB at most.
const MAX_CHART_BYTES: usize = (1 << 20) - 1024;
/// In bytes: a limit for the decompressed content, far above that of any chart whose archive has an allowed size.
const MAX_UNPACKED_BYTES: u64 = 64 << 20;

/// A chart's archive, with its entry in the definition.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) spec: ChartSpec,
    pub(super) file: PathBuf,
    pub(super) archive: Vec<u8>,
    pub(super) values: Option<String>,
}

/// The fields of `Chart.yaml` that are used.
#[derive(Debug, Deserialize)]
struct Metadata {
    version: String,
    #[serde(rename = "type", default)]
    kind: Option<String>,
}

impl Chart {
    /// Reads the chart of `spec`; `resolve` gives the paths of its files.
    pub(super) fn read(
        spec: &ChartSpec,
        resolve: &dyn Fn(&Path) -> PathBuf,
        helm: &Helm<'_>,
    ) -> Result<Self> {
        let file = resolve(&spec.path);
        let archive = if file.is_dir() { pack(&file, helm)? } else { read(&file)? };
        let metadata =
            metadata(&archive).class(Class::Invalid, || format!("reading the chart {}", file.display()))?;
        let values = spec.values.as_ref().map(|path| {
            let path = resolve(path);
            let text = files::read_text(&path);
            text.class(Class::Invalid, || format!("reading the values of the chart {}", spec.name))
        });
        let chart = Self { spec: spec.clone(), file, archive, values: values.transpose()? };
        chart.check(&metadata)?;
        Ok(chart)
    }

    fn check(&self, metadata: &Metadata) -> Result<()> {
        let wrong = |what: String, hint: &str| {
            Err(Failure::new(Class::Invalid, format!("the chart {} {what}", self.file.display()))
                .hint(hint)
                .into())
        };
        if let Some(version) = self.spec.version.as_ref().filter(|version| **version != metadata.version) {
            let what = format!("has the version {}, not {version}", metadata.version);
            return wrong(what, "Ship the version that the definition asks for, or change its `version`.");
        }
        if metadata.kind.as_deref() == Some("library") {
            return wrong("is a library for other charts".into(), "Ship the chart that uses it.");
        }
        let size = self.archive.len().div_ceil(3) * 4;
        if size > MAX_CHART_BYTES {
            let what = format!("has {size} bytes in base64; a cluster accepts {MAX_CHART_BYTES}");
            return wrong(
                what,
                "Leave out files that the cluster does not need, with .helmignore, or divide the chart.",
            );
        }
        Ok(())
    }

    /// The object that makes the distribution install the chart.
    pub(super) fn object(&self) -> Value {
        let spec = &self.spec;
        let mut keys = Map::new();
        keys.insert("chartContent".to_owned(), json!(BASE64_STANDARD.encode(&self.archive)));
        keys.insert("targetNamespace".to_owned(), json!(spec.namespace));
        if spec.create_namespace {
            keys.insert("createNamespace".to_owned(), json!(true));
        }
        keys.extend(self.values.as_ref().map(|values| ("valuesContent".to_owned(), json!(values))));
        json!({
            "apiVersion": "helm.cattle.io/v1",
            "kind": "HelmChart",
            "metadata": { "name": spec.name, "namespace": "kube-system" },
            "spec": keys,
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let bytes = files::read_at_most(file, MAX_UNPACKED_BYTES);
    bytes.class(Class::Invalid, || format!("reading the chart {}", file.display()))
}

/// Packs the chart in a directory. Helm decides which files belong to it; order, owners and times are always the same.
fn pack(directory: &Path, helm: &Helm<'_>) -> Result<Vec<u8>> {
    refuse_links(directory)?;
    let scratch = helm.scratch()?;
    helm.package(directory, scratch.path())?;
    let mut packed = fs::read_dir(scratch.path())?.filter_map(Result::ok).map(|entry| entry.path());
    let packed = packed.find(|path| path.extension().is_some_and(|ending| ending == "tgz"));
    let packed = files::read_at_most(&packed.context("helm made no archive")?, MAX_UNPACKED_BYTES)?;
    repack(&packed, directory).with_context(|| format!("packing the chart {}", directory.display()))
}

/// Fails if there are links: one could lead to a file that is not recorded as an input of the build.
fn refuse_links(directory: &Path) -> Result<()> {
    for entry in WalkDir::new(directory) {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        if !entry.file_type().is_dir() && !entry.file_type().is_file() {
            let what = format!("{} is neither a file nor a directory", entry.path().display());
            return Err(Failure::new(Class::Invalid, what)
                .hint("Put the file itself into the chart.")
                .into());
        }
    }
    Ok(())
}

/// The files that helm packed, with their content from the chart's `directory`: helm rewrites some, differently in each
/// version.
fn repack(archive: &[u8], directory: &Path) -> Result<Vec<u8>> {
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let mut tar = tar::Builder::new(gzip);
    for (path, packed) in content(archive)? {
        let own = path.split_once('/').map(|(_, inside)| directory.join(inside)).filter(|own| own.is_file());
        let bytes = own.map_or(Ok(packed), |own| files::read_at_most(&own, MAX_UNPACKED_BYTES))?;
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, path, bytes.as_slice())?;
    }
    Ok(tar.into_inner()?.finish()?)
}

/// `Chart.yaml` at the top of the archive.
fn metadata(archive: &[u8]) -> Result<Metadata> {
    let files = content(archive)?;
    let mut texts = files.iter().filter(|(path, _)| path.split('/').skip(1).eq(["Chart.yaml"]));
    let (_, text) = texts.next().context("the archive has no NAME/Chart.yaml")?;
    let text = std::str::from_utf8(text).context("Chart.yaml is not UTF-8")?;
    serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("Chart.yaml: {error}"))
}

/// The files of a packed chart by their paths, which begin with the chart's name.
fn content(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut members = ArchiveMembers::new(GzDecoder::new(archive).take(MAX_UNPACKED_BYTES));
    let mut files = BTreeMap::new();
    while let Some(member) = members.advance()? {
        if let (MemberKind::File(_), Some(path)) = (member.kind, inside(&member.path)) {
            let mut bytes = Vec::new();
            members.read_to_end(&mut bytes)?;
            files.insert(String::from_utf8(path)?, bytes);
        }
    }
    Ok(files)
}
