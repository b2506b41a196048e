//! Where a server keeps its state, as `--state` names it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::files;

pub use super::lock::StateLock;

use super::MachineStore;
use super::import;
use super::lock;
use super::postgres::address::PostgresAddress;
use super::postgres::{PostgresStore, StoreNotice};
use super::sqlite::{self, SqliteStore};

/// The state of a server.
#[derive(Clone, Debug)]
pub struct StateLocation {
    /// What only this server uses: its certificate authority, the address of the fleet page, a fetched medium, dnsmasq's leases.
    pub directory: PathBuf,
    pub database: StateDatabase,
}

/// The database with the records of machines.
#[derive(Clone)]
pub enum StateDatabase {
    /// A file in the directory.
    Sqlite(PathBuf),
    /// A database that other servers can use too.
    Postgres(Box<PostgresAddress>),
}

impl fmt::Debug for StateDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => f.debug_tuple("Sqlite").field(file).finish(),
            Self::Postgres(address) => f.debug_tuple("Postgres").field(&address.shown).finish(),
        }
    }
}

impl StateLocation {
    /// The state in a directory, in the file of the default name.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        let database = StateDatabase::Sqlite(directory.join(sqlite::NAME));
        Self { directory: directory.to_owned(), database }
    }

    /// Reads `DIRECTORY`, `sqlite:FILE` or `postgres://…`. A server with PostgreSQL keeps its own files in `directory`, which is
    /// only for it. Any mistake is [`Class::Invalid`]; none of the messages has a password.
    pub fn parse(state: &Path, directory: Option<&Path>, default: &Path) -> Result<Self> {
        let text = state.to_string_lossy();
        if text.starts_with("postgres:") || text.starts_with("postgresql:") {
            let directory = directory.unwrap_or(default).to_owned();
            return Ok(Self {
                directory,
                database: StateDatabase::Postgres(Box::new(PostgresAddress::parse(&text)?)),
            });
        }
        if directory.is_some() {
            let what = "--state-directory has no effect: only a server with --state postgres://… has files apart from its state";
            return Err(Failure::new(Class::Invalid, what).hint("Remove --state-directory.").into());
        }
        let Some(file) = text.strip_prefix("sqlite:") else { return Ok(Self::in_directory(state)) };
        let path = Path::new(file);
        if path.file_name().is_none() || path.is_dir() {
            let what = format!("--state {text} does not name a file");
            return Err(Failure::new(Class::Invalid, what)
                .hint("Give a file, such as sqlite:/var/lib/nqrust/machines.db, or a directory without `sqlite:`.")
                .into());
        }
        Ok(Self {
            directory: files::parent(path).to_owned(),
            database: StateDatabase::Sqlite(path.to_owned()),
        })
    }

    /// Locks the directory for this server, unless [`StateLocation::open`] does.
    pub fn lock(&self) -> Result<Option<StateLock>> {
        self.is_shared().then(|| lock::lock(&self.directory)).transpose()
    }

    /// Opens the state, or makes it, and imports what was kept in the directory before. `notice` gets messages for the operator while it is used.
    pub fn open(&self, notice: StoreNotice) -> Result<Box<dyn MachineStore>> {
        Ok(match &self.database {
            StateDatabase::Sqlite(file) => {
                let store = SqliteStore::open(file)?;
                import::from_json(&self.directory, &store)?;
                Box::new(store)
            }
            StateDatabase::Postgres(address) => {
                let store = PostgresStore::open(address, notice)?;
                import::from_file(&self.directory, &store)?;
                Box::new(store)
            }
        })
    }

    /// Opens the state beside the servers that use it, for a command. A file is never made: a misspelled name would be taken for a
    /// state without records ([`Class::Invalid`]).
    pub fn open_beside(&self, notice: StoreNotice) -> Result<Box<dyn MachineStore>> {
        match &self.database {
            StateDatabase::Sqlite(file) => {
                if !fs::exists(file)
                    .class(Class::DiskIo, || format!("opening the state {}", file.display()))?
                {
                    let what = format!("there is no state of a server in {}", file.display());
                    let hint = "Name the state of the server with --state, or start the server once, which makes it.";
                    return Err(Failure::new(Class::Invalid, what).hint(hint).into());
                }
                Ok(Box::new(SqliteStore::with_lock(file, None)?))
            }
            StateDatabase::Postgres(address) => Ok(Box::new(PostgresStore::open(address, notice)?)),
        }
    }

    /// Whether several servers can use the state at a time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.database, StateDatabase::Postgres(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    fn parsed(state: &str, directory: Option<&str>) -> Result<StateLocation> {
        StateLocation::parse(Path::new(state), directory.map(Path::new), Path::new("/var/lib/default"))
    }

    #[test]
    fn a_state_is_a_directory_a_file_or_a_database() {
        for (state, own, directory, file) in [
            ("/srv/state", None, "/srv/state", Some("/srv/state/machines.db")),
            ("state", None, "state", Some("state/machines.db")),
            ("sqlite:/srv/state/fleet.db", None, "/srv/state", Some("/srv/state/fleet.db")),
            ("sqlite:fleet.db", None, ".", Some("fleet.db")),
            ("postgres://db.example.org/fleet", None, "/var/lib/default", None),
            ("postgresql://db.example.org/fleet", Some("/srv/own"), "/srv/own", None),
        ] {
            let location = parsed(state, own).unwrap();
            assert_eq!(location.directory, Path::new(directory), "{state}");
            assert_eq!(location.is_shared(), file.is_none(), "{state}");
            if let StateDatabase::Sqlite(found) = &location.database {
                assert_eq!(Some(found.as_path()), file.map(Path::new), "{state}");
            }
        }
    }

    #[test]
    fn a_state_that_is_none_is_refused_with_the_form_that_is_right() {
        for (state, own, told) in [
            ("sqlite:", None, "does not name a file"),
            ("sqlite:/", None, "does not name a file"),
            ("sqlite:/tmp", None, "does not name a file"),
            ("/srv/state", Some("/srv/own"), "--state-directory has no effect"),
            ("postgres:fleet", None, "postgres://USER@HOST/DATABASE"),
        ] {
            let error = parsed(state, own).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{state}");
            assert!(render(&error).contains(told), "{state}: {}", render(&error));
        }
    }
}
