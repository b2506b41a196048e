//! Where a user's keys are: `NAME.key` with the secret key, readable by nobody else, and `NAME.pub` with the public one.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::failure::{Class, Classify, Failure};
use base::files::{self, write_atomically};
use formats::minisign::{KeyDerivation, KeyId, PublicKey, SecretKey};
use serde::Serialize;

/// The name of the key that is made where none is asked for.
pub const DEVELOPMENT: &str = "development";
/// The environment variable that names another directory.
pub const VARIABLE: &str = "NQRUST_KEYS";
/// What the comment in the files of a development key begins with.
const DEVELOPMENT_COMMENT: &str = "development key";
/// Likewise of any other key.
const KEY_COMMENT: &str = "key";
/// The most bytes that a file with a key has.
pub(crate) const MAX_KEY_BYTES: u64 = 4096;

/// A directory with keys.
#[derive(Clone, Debug)]
pub struct KeyDirectory(PathBuf);

/// A key that was made.
#[derive(Debug, Serialize)]
pub struct NewKey {
    pub name: String,
    pub id: KeyId,
    pub key: PublicKey,
    pub secret_file: PathBuf,
    pub public_file: PathBuf,
    pub development: bool,
}

/// What a person has to know of a key that was made.
pub(crate) const KEEP_A_COPY: &str = "Back up the secret key file to a place where only you can read it.";

/// The key, and where it is.
impl fmt::Display for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id, secret_file, public_file, .. } = self;
        let (secret, public) = (secret_file.display(), public_file.display());
        write!(f, "key {id} ({name})\n  secret  {secret}\n  public  {public}")
    }
}

/// A public key in a file.
#[derive(Clone, Debug, Serialize)]
pub struct KeyFile {
    pub name: String,
    pub id: KeyId,
    pub key: PublicKey,
    pub file: PathBuf,
    pub development: bool,
}

impl KeyDirectory {
    /// The directory that is named, or that of [`VARIABLE`], or `nqrust/keys` in the user's data directory.
    #[must_use]
    pub fn of_user(named: Option<PathBuf>) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let data = || variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
        let home = || variable("HOME").map(|home| home.join(".local/share"));
        let standard = || data().or_else(home).unwrap_or_default().join("nqrust/keys");
        Self(named.or_else(|| variable(VARIABLE)).unwrap_or_else(standard))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file of the secret key with this name.
    #[must_use]
    pub fn secret_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.key"))
    }

    fn public_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pub"))
    }

    /// Checks that a key with this name can be made.
    ///
    /// # Errors
    /// [`Class::Invalid`] for a name that is no file name, or is taken.
    pub fn check_new(&self, name: &str) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(plain) {
            let what = format!("{name:?} cannot be the name of a key");
            return Err(Failure::new(Class::Invalid, what)
                .hint("Use letters, digits, `.`, `_` and `-`; the first is a letter or a digit.")
                .into());
        }
        let files = [self.secret_file(name), self.public_file(name)];
        let Some(taken) = files.into_iter().find(|file| file.symlink_metadata().is_ok()) else {
            return Ok(());
        };
        let what = format!("there is a key {name} already: {}", taken.display());
        Err(Failure::new(Class::Invalid, what)
            .hint("Give the new key another name; nodes that trust the old one need it for their updates.")
            .into())
    }

    /// Makes a key. Files that are there are never replaced: who loses a key can sign no update any more.
    ///
    /// # Errors
    /// As of [`Self::check_new`].
    pub fn make(&self, name: &str, passphrase: Option<&str>, derivation: KeyDerivation) -> Result<NewKey> {
        let development = name == DEVELOPMENT;
        self.check_new(name)?;
        let (secret_file, public_file) = (self.secret_file(name), self.public_file(name));
        let key = SecretKey::generate().context("making a key of random bytes")?;
        let public = key.public_key();
        let kind = if development { DEVELOPMENT_COMMENT } else { KEY_COMMENT };
        let comment = format!("{kind} {} {}", name, public.id());
        let protection = passphrase.map(|passphrase| (passphrase.as_bytes(), derivation));
        let text = key.to_text(&format!("{comment}, secret"), protection).context("protecting the key")?;
        files::make_directory(&self.0, 0o700)
            .class(Class::DiskIo, || format!("making the directory {}", self.0.display()))?;
        // The public one first: with the secret one, the key is whole.
        for (file, text, mode) in
            [(&public_file, public.to_text(&comment), 0o644), (&secret_file, text, 0o600)]
        {
            write_atomically(file, text.as_bytes(), mode)
                .class(Class::DiskIo, || format!("writing {}", file.display()))?;
        }
        Ok(NewKey {
            name: name.to_owned(),
            id: public.id(),
            key: public,
            secret_file,
            public_file,
            development,
        })
    }

    /// The public keys of the directory, by name; none where there is no directory.
    pub fn public_keys(&self) -> Result<Vec<KeyFile>> {
        let listed = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.class(Class::Invalid, || format!("reading the keys in {}", self.0.display()))?,
        };
        let paths = listed.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        let mut keys = paths
            .iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "pub"))
            .map(|path| KeyFile::read(path))
            .collect::<Result<Vec<_>>>()?;
        keys.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(keys)
    }

    /// The public key that `named` names: a file, or one of the directory.
    ///
    /// # Errors
    /// [`Class::Invalid`] if there is none.
    pub fn find(&self, named: &str) -> Result<KeyFile> {
        let file = Path::new(named);
        if named.contains('/') || file.exists() {
            return KeyFile::read(file);
        }
        self.public_keys()?.into_iter().find(|key| key.name == named).ok_or_else(|| {
            Failure::new(Class::Invalid, format!("there is no key {named} in {}", self.0.display()))
                .hint("`iso-builder keys show` lists those that there are.")
                .into()
        })
    }
}

impl KeyFile {
    /// Reads the file of a public key. Its name is that of its comment, or else that of the file without `.pub`.
    pub fn read(file: &Path) -> Result<Self> {
        let what = || format!("reading the public key {}", base::files::named::told(file));
        let text = base::files::named::read_text_at_most(file, MAX_KEY_BYTES).class(Class::Invalid, what)?;
        let key = PublicKey::parse(&text).class(Class::Invalid, what)?;
        let comment = KeyComment::of(&text, key.id());
        let stem = || file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = comment.name.map_or_else(stem, ToOwned::to_owned);
        Ok(Self { name, id: key.id(), key, file: file.to_owned(), development: comment.development })
    }
}

/// What the file of a key says about it in its comment.
#[derive(Debug, Default)]
pub(super) struct KeyComment<'a> {
    /// None if the builder did not make the file.
    pub(super) name: Option<&'a str>,
    /// True for one to try things with.
    pub(super) development: bool,
}

impl<'a> KeyComment<'a> {
    /// That of the file with the content `text`, whose key has the id `id`.
    pub(super) fn of(text: &'a str, id: KeyId) -> Self {
        let comment = text.lines().next().and_then(|line| line.strip_prefix("untrusted comment: "));
        let development = comment.and_then(|comment| comment.strip_prefix(DEVELOPMENT_COMMENT));
        let named = development.or_else(|| comment?.strip_prefix(KEY_COMMENT)).map(str::trim_start);
        let name = named.and_then(|named| Some(named.split_once(&format!(" {id}"))?.0));
        Self { name, development: development.is_some() }
    }
}
