//! Reading a finished node from its disk.
//!
//! Its configuration partition is read by debugfs(8), which opens the disk read-only: nothing is mounted, no journal is replayed,
//! and the kernel's file system driver never sees untrusted data. The partition is given by its offset on the disk, so that it
//! does not matter whether the kernel shows it, nor that it is half of an array.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::find::NodePlace;
use super::record::{FILE, InstallRecord};
use base::command::{Invocation, Runner};
use base::digest::Digest;
use base::failure::causes;
use model::config::{self, InstallConfig, NodeRole};
use model::release::{MANIFEST, Release};

const DOCUMENT: &str = "node.yaml";
const MACHINE_ID: &str = "machine-id";
/// No file that is read here is longer.
const FILE_BYTES_MAX: usize = 4 << 20;
/// For one file, on a disk that may be broken.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct FinishedNode {
    /// Its disk; the first one of a mirror.
    pub place: NodePlace,
    /// The device node of the second disk of a mirror.
    pub twin: Option<PathBuf>,
    /// From its node document.
    pub identity: Option<FinishedIdentity>,
    /// The install that made it.
    pub origin: NodeOrigin,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedIdentity {
    pub hostname: Option<String>,
    pub role: NodeRole,
    /// The cluster that it joined.
    pub cluster: Option<String>,
}

#[derive(Clone, Debug)]
pub enum NodeOrigin {
    Recorded(Box<InstallRecord>),
    /// The node has no record, like those of older installers; only its release manifest is known.
    Unrecorded(Option<KnownRelease>),
    /// Nothing, for this reason.
    Unreadable(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRelease {
    pub product: String,
    /// SHA-256 of the release manifest.
    pub release: Digest,
}

/// Reads the nodes at these places. Two disks of one node are one.
#[must_use]
pub fn read(places: Vec<NodePlace>, runner: &dyn Runner) -> Vec<FinishedNode> {
    let mut nodes: Vec<(FinishedNode, Option<String>)> = Vec::new();
    for place in places {
        let disk = place.disk.clone();
        let (node, id) = read_one(place, runner);
        let twin = nodes.iter_mut().find(|(_, known)| id.is_some() && *known == id);
        match twin {
            Some((first, _)) => first.twin = Some(disk),
            None => nodes.push((node, id)),
        }
    }
    nodes.into_iter().map(|(node, _)| node).collect()
}

fn read_one(place: NodePlace, runner: &dyn Runner) -> (FinishedNode, Option<String>) {
    let text = |name: &str| file(&place, name, runner);
    let document = text(DOCUMENT);
    let origin = match (&document, &text(FILE)) {
        (Err(error), _) | (_, Err(error)) => NodeOrigin::Unreadable(causes(error).join(": ")),
        // Every finished node has one: without it the partition is not that of a node.
        (Ok(None), _) => {
            NodeOrigin::Unreadable(format!("the configuration partition has no readable {DOCUMENT}"))
        }
        (Ok(Some(_)), Ok(Some(record))) => match InstallRecord::parse(record) {
            Ok(record) => NodeOrigin::Recorded(Box::new(record)),
            Err(error) => NodeOrigin::Unreadable(format!("the record {FILE} cannot be used: {error:#}")),
        },
        (Ok(Some(_)), Ok(None)) => {
            NodeOrigin::Unrecorded(text(MANIFEST).ok().flatten().and_then(|text| known(&text)))
        }
    };
    let config = document.ok().flatten().and_then(|text| config::parse(&text, DOCUMENT).ok());
    let id = text(MACHINE_ID).ok().flatten();
    (FinishedNode { identity: config.as_ref().map(identity), place, twin: None, origin }, id)
}

/// The text of a file on the configuration partition; `None` if there is none.
fn file(place: &NodePlace, name: &str, runner: &dyn Runner) -> Result<Option<String>> {
    let mut disk = place.disk.clone().into_os_string();
    disk.push(format!("?offset={}", place.config.get()));
    // -c: not even the bitmaps are read, which a damaged file system may have lost.
    let cat = Invocation::new("debugfs").args(["-c", "-R"]).arg(format!("cat /{name}")).arg(disk);
    let bytes = runner.run(&cat.output(FILE_BYTES_MAX).limit(READ_TIMEOUT))?;
    // A missing file is reported on standard error, with exit code 0.
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{name} is not text"))?;
    Ok((!text.is_empty()).then_some(text))
}

fn identity(config: &InstallConfig) -> FinishedIdentity {
    let joined = config.server_url.as_ref().map(ToString::to_string);
    let vip = || config.install.vip.map(|vip| vip.to_string());
    FinishedIdentity {
        hostname: config.os.hostname.as_ref().map(ToString::to_string),
        role: config.install.node_role(),
        cluster: joined.or_else(vip),
    }
}

fn known(manifest: &str) -> Option<KnownRelease> {
    let release = Release::parse(manifest.as_bytes()).ok()?;
    let product = format!("{} {}", release.name, release.version);
    let release = Digest::of(manifest.as_bytes());
    (!product.chars().any(char::is_control)).then_some(KnownRelease { product, release })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::installed::find::{find, tests::node};
    use crate::installed::record::tests::offer;
    use base::command::SystemRunner;
    use base::size::ByteSize;
    use model::config::Role;
    use std::fs;
    use std::path::Path;

    /// A disk with a configuration partition that holds `files`.
    fn disk(directory: &Path, name: &str, files: &[(&str, &str)]) -> NodePlace {
        let content = directory.join(format!("{name}-content"));
        fs::create_dir_all(&content).unwrap();
        files.iter().for_each(|(name, text)| fs::write(content.join(name), text).unwrap());
        let path = directory.join(name);
        fs::File::create(&path).unwrap().set_len(80 << 20).unwrap();
        let make =
            Invocation::new("mkfs.ext4").args(["-q", "-F", "-b", "1024", "-E", "offset=8388608", "-d"]);
        SystemRunner.run(&make.arg(&content).arg(&path).arg("32768")).unwrap();
        let mut inventoried = node("vda", true);
        inventoried.path = path;
        let place = find(&[&inventoried]).remove(0);
        NodePlace { config: ByteSize::mib(8), ..place }
    }

    const DOCUMENT: &str = "{server_url: 'https://192.0.2.10', install: {mode: join, role: worker}, \
                            os: {hostname: node-7}}\n";

    #[test]
    fn a_node_tells_who_it_is_and_its_disk_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let record = InstallRecord::begin(&offer(DOCUMENT), &[]).unwrap();
        let json = record.to_json().unwrap();
        let files = [("node.yaml", DOCUMENT), (FILE, json.expose()), ("machine-id", "0123\n")];
        let place = disk(directory.path(), "disk", &files);
        let before = Digest::of(&fs::read(&place.disk).unwrap());
        let mut permissions = fs::metadata(&place.disk).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&place.disk, permissions).unwrap();
        let nodes = read(vec![place.clone()], &SystemRunner);
        let [found] = &nodes[..] else { panic!("{nodes:?}") };
        let identity = found.identity.clone().unwrap();
        assert_eq!((identity.hostname.as_deref(), identity.role.role), (Some("node-7"), Role::Worker));
        assert_eq!(identity.cluster.as_deref(), Some("https://192.0.2.10"));
        assert!(matches!(&found.origin, NodeOrigin::Recorded(found) if **found == record), "{found:?}");
        assert_eq!(Digest::of(&fs::read(&place.disk).unwrap()), before);
    }

    #[test]
    fn two_disks_of_one_node_are_one_node_and_two_nodes_are_two() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, id: &str| {
            disk(directory.path(), name, &[("node.yaml", DOCUMENT), ("machine-id", id)])
        };
        let nodes =
            read(vec![make("one", "11\n"), make("two", "11\n"), make("three", "22\n")], &SystemRunner);
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[0].twin, Some(directory.path().join("two")));
        assert!(nodes[1].twin.is_none());
    }

    #[test]
    fn a_node_of_an_older_installer_is_known_by_its_manifest() {
        let directory = tempfile::tempdir().unwrap();
        let release = testing::release::release();
        let manifest = String::from_utf8(release.to_bytes()).unwrap();
        let place = disk(directory.path(), "disk", &[("node.yaml", DOCUMENT), (MANIFEST, &manifest)]);
        let nodes = read(vec![place], &SystemRunner);
        let expected = KnownRelease {
            product: format!("{} {}", release.name, release.version),
            release: Digest::of(manifest.as_bytes()),
        };
        assert!(
            matches!(&nodes[0].origin, NodeOrigin::Unrecorded(Some(known)) if *known == expected),
            "{nodes:?}"
        );
    }

    #[test]
    fn what_cannot_be_read_says_so_and_is_still_a_node() {
        let directory = tempfile::tempdir().unwrap();
        let place = disk(directory.path(), "disk", &[("node.yaml", DOCUMENT), (FILE, "{\"version\": 1")]);
        let elsewhere = NodePlace { config: ByteSize::mib(60), ..place.clone() };
        let gone = NodePlace { disk: "/nonexistent/disk".into(), ..place.clone() };
        for (place, told) in
            [(place, "the record installed.json cannot be used"), (elsewhere, "Bad magic number"), (gone, "")]
        {
            let nodes = read(vec![place], &SystemRunner);
            assert!(
                matches!(&nodes[0].origin, NodeOrigin::Unreadable(why) if why.contains(told)),
                "{nodes:?}"
            );
        }
    }
}
