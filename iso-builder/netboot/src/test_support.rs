//! Media and machines for the tests of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use model::config::Secret;
use model::machine::{Identity, Selector};
use model::release::MediumKind;

use crate::machines::access_token::TokenRole;
use crate::machines::audit::Actor;
use crate::machines::configurations::Configurations;
use crate::machines::registry::MachineRegistry;
use crate::machines::store::MachineStore;
use crate::machines::store::location::{StateDatabase, StateLocation};
use crate::machines::store::postgres::address::PostgresAddress;
use testing::medium::SampleMedium;
use testing::postgres::PostgresServer;

pub(crate) use testing::medium::INITRD;

/// A configuration that a machine can be installed with.
pub(crate) const NODE: &str = "token: 9f2c4e6a8b0d1357924680acebdf1357\n\
     os: {hostname: node-1, password: a-very-secret-password, ntp_servers: [192.0.2.123]}\n\
     install: {mode: create, vip: 192.0.2.10, device: /dev/disk/by-id/virtio-1}\n";
pub(crate) const SECRETS: [&str; 2] = ["9f2c4e6a8b0d1357924680acebdf1357", "a-very-secret-password"];

/// A medium that machines can boot, without a configuration of its own.
pub(crate) fn medium(kind: MediumKind) -> SampleMedium {
    SampleMedium::bootable(kind)
}

/// Writes the manifest of the sample as it is now.
pub(crate) fn write_manifest(sample: &SampleMedium) -> PathBuf {
    let path = sample.tree().join("release.json");
    fs::write(&path, sample.release.to_bytes()).unwrap();
    path
}

/// Compares with a file in `boot/golden/`, which `UPDATE_GOLDEN=1` writes.
pub(crate) fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/boot/golden").join(name);
    testing::golden::compare(path, text);
}

/// Configurations of these names, as the files of `--configs` have them.
pub(crate) fn configurations(names: &[&str]) -> Configurations {
    let mut all = Configurations::default();
    for name in names {
        let stem = name.trim_end_matches(".yaml");
        let selectors = (stem != "default").then(|| Selector::from_stem(stem).unwrap());
        all.add(name, Secret::new(NODE), selectors.into_iter().collect());
    }
    all
}

/// The identity in this query of `/v1/boot`: `mac=…&serial=…&uuid=…&asset=…`.
pub(crate) fn told(query: &str) -> Identity {
    let mut identity = Identity::default();
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match key {
            "mac" => identity.macs.push(value.parse().unwrap()),
            "serial" => identity.serial = Some(value.into()),
            "uuid" => identity.uuid = Some(value.parse().unwrap()),
            _ => identity.asset_tag = Some(value.into()),
        }
    }
    identity.macs.sort_unstable();
    identity
}

/// Who acts on machines.
pub(crate) fn operator() -> Actor {
    Actor::token("alice", TokenRole::Operate, Some([192, 0, 2, 7].into()))
}

/// The registry with its state in a directory.
pub(crate) fn registry(directory: &Path) -> MachineRegistry {
    MachineRegistry::open(&StateLocation::in_directory(directory), Box::new(|_| {})).unwrap()
}

/// A place in which a store of one kind keeps its records.
#[derive(Debug)]
pub(crate) struct StorePlace {
    directory: tempfile::TempDir,
    /// The URL of a database.
    pub(crate) url: Option<String>,
}

impl StorePlace {
    /// A directory for a file.
    pub(crate) fn sqlite() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), url: None }
    }

    /// An empty database of the server that all tests share.
    pub(crate) fn postgres() -> Self {
        Self { url: Some(postgres_server().database()), ..Self::sqlite() }
    }

    pub(crate) fn location(&self) -> StateLocation {
        let directory = self.directory.path().join("state");
        match &self.url {
            None => StateLocation::in_directory(&directory),
            Some(url) => {
                let address = PostgresAddress::parse(url).unwrap();
                StateLocation { directory, database: StateDatabase::Postgres(Box::new(address)) }
            }
        }
    }

    pub(crate) fn open(&self) -> Box<dyn MachineStore> {
        self.location().open(Box::new(|_| {})).unwrap()
    }

    pub(crate) fn registry(&self) -> MachineRegistry {
        MachineRegistry::new(self.open())
    }
}

pub(crate) fn postgres_server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(PostgresServer::start)
}

/// Makes a test of each function for every kind of store; it gets the place of an empty one.
macro_rules! for_every_store {
    ($($name:ident),+ $(,)?) => {
        mod in_sqlite {
            $(#[test]
            fn $name() {
                super::$name(&crate::test_support::StorePlace::sqlite());
            })+
        }
        mod in_postgres {
            $(#[test]
            fn $name() {
                super::$name(&crate::test_support::StorePlace::postgres());
            })+
        }
    };
}
pub(crate) use for_every_store;
