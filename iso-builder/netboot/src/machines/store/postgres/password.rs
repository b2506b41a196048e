//! The password of a database from where libpq has it: the variable `PGPASSWORD`, or a file with passwords
//! (<https://www.postgresql.org/docs/current/libpq-pgpass.html>), which the address, the variable `PGPASSFILE` or the home
//! directory names.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify, Failure};
use model::config::Secret;

use super::address::PostgresAddress;

/// The longest file of passwords, in bytes.
const LONGEST: u64 = 1 << 20;
/// Permissions of the group and of others.
const OTHERS: u32 = 0o077;
/// The group may read a file of root, who alone has chosen the group. It is libpq's rule for private keys, and without it no user
/// but root could read a Secret that Kubernetes mounts: its files belong to root and to the group `fsGroup`.
const OTHERS_OF_ROOT: u32 = 0o037;

/// The password for `address`; none where there is none, as with `peer` or a certificate. `variable` reads the environment.
pub(super) fn find(
    address: &PostgresAddress,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Secret>> {
    if let Some(password) = variable("PGPASSWORD").filter(|value| !value.is_empty()) {
        return Ok(Some(Secret::new(String::from_utf8_lossy(password.as_bytes()))));
    }
    let named = address.password_file.clone();
    let named = named.or_else(|| variable("PGPASSFILE").filter(|value| !value.is_empty()).map(PathBuf::from));
    let file = match (&named, variable("HOME")) {
        (Some(file), _) => file.clone(),
        (None, Some(home)) => Path::new(&home).join(".pgpass"),
        (None, None) => return Ok(None),
    };
    let Some(text) = read(&file, named.is_some())? else { return Ok(None) };
    let wanted =
        [address.host(), address.port().to_string(), address.database().into(), address.user().into()];
    Ok(text.lines().find_map(|line| of_line(line, &wanted)).map(Secret::new))
}

/// The file's text; none if it does not exist and nobody has named it.
fn read(path: &Path, is_named: bool) -> Result<Option<String>> {
    let what = || format!("reading the passwords in {}", path.display());
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => return Ok(None),
        opened => opened.class(Class::Invalid, what)?,
    };
    let found = file.metadata().class(Class::DiskIo, what)?;
    let refused = if found.uid() == 0 { OTHERS_OF_ROOT } else { OTHERS };
    if found.is_file() && found.mode() & refused != 0 {
        return Err(Failure::new(Class::Invalid, what())
            .because(anyhow!("other users can read or write it"))
            .hint(format!("Run `chmod 600 {}`.", path.display()))
            .into());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).class(Class::Invalid, what)?;
    Ok(Some(text))
}

/// The password of a line `host:port:database:user:password` that is for `wanted`. A field `*` is for all; a backslash makes the
/// character after it an ordinary one.
fn of_line(line: &str, wanted: &[String; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    for value in wanted {
        let (field, after) = field(rest)?;
        // A socket is `localhost` in such files if its directory is the default one.
        let is_local = value.starts_with('/') && field == "localhost";
        if field != "*" && field != *value && !is_local {
            return None;
        }
        rest = after;
    }
    let mut password = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        password.push(if character == '\\' { characters.next()? } else { character });
    }
    (!password.is_empty()).then_some(password)
}

/// The first field of a line and what follows its colon.
fn field(line: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut characters = line.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '\\' => field.push(characters.next()?.1),
            ':' => return Some((field, &line[place + 1..])),
            character => field.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use nix::unistd::{Uid, chown};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const URL: &str = "postgres://serve@db.example.org/fleet";

    fn found(url: &str, file: Option<&Path>, variables: &[(&str, &str)]) -> Result<Option<String>> {
        let address = PostgresAddress::parse(url)?;
        let variable = |name: &str| match (name, file) {
            ("PGPASSFILE", Some(file)) => Some(file.as_os_str().to_owned()),
            _ => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()),
        };
        Ok(find(&address, variable)?.map(|secret| secret.expose().to_owned()))
    }

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_first_line_for_the_database_has_its_password() {
        for (text, expected) in [
            ("db.example.org:5432:fleet:serve:one\n*:*:*:*:two\n", Some("one")),
            ("# *:*:*:*:zero\nother:*:*:*:one\n*:*:*:serve:two:2\n", Some("two:2")),
            (r"db.example.org:*:fleet:serve:a\:b\\c", Some(r"a:b\c")),
            ("db.example.org:5433:fleet:serve:one\n", None),
            ("db.example.org:5432:fleet:other:one\n", None),
            ("db.example.org:5432:fleet\n:\n\n", None),
        ] {
            let file = file(text, 0o600);
            assert_eq!(found(URL, Some(file.path()), &[]).unwrap().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_variable_comes_before_files_and_a_file_of_the_address_before_that_of_the_variable() {
        let (one, other) = (file("*:*:*:*:one", 0o600), file("*:*:*:*:other", 0o600));
        let named = format!("{URL}?passfile={}", other.path().display());
        assert_eq!(found(&named, Some(one.path()), &[]).unwrap().as_deref(), Some("other"));
        assert_eq!(
            found(&named, Some(one.path()), &[("PGPASSWORD", "env")]).unwrap().as_deref(),
            Some("env")
        );
        let home = tempfile::tempdir().unwrap();
        let variables = [("HOME", home.path().to_str().unwrap())];
        assert_eq!(found(URL, None, &variables).unwrap(), None);
        fs::copy(one.path(), home.path().join(".pgpass")).unwrap();
        assert_eq!(found(URL, None, &variables).unwrap().as_deref(), Some("one"));
        let socket = "postgres:///fleet?host=/run/postgresql&user=serve";
        let local = file("localhost:*:*:*:local", 0o600);
        assert_eq!(found(socket, Some(local.path()), &[]).unwrap().as_deref(), Some("local"));
    }

    #[test]
    fn a_file_that_others_can_read_and_a_named_one_that_is_missing_are_refused() {
        // Only root can give a file to another user.
        let (me, root) = (Uid::effective(), Uid::from_raw(0));
        let other = if me.is_root() { Uid::from_raw(65534) } else { me };
        for (owner, mode, accepted) in [
            (other, 0o600, true),
            (other, 0o640, false),
            (other, 0o604, false),
            (root, 0o440, true),
            (root, 0o660, false),
            (root, 0o644, false),
        ] {
            let file = file("*:*:*:*:SECRET", mode);
            if owner != me {
                if !me.is_root() {
                    continue;
                }
                chown(file.path(), Some(owner), None).unwrap();
            }
            let found = found(URL, Some(file.path()), &[]);
            if accepted {
                assert_eq!(found.unwrap().as_deref(), Some("SECRET"), "{owner} {mode:o}");
                continue;
            }
            let error = found.unwrap_err();
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Invalid);
            assert!(text.contains("chmod 600") && !text.contains("SECRET"), "{owner} {mode:o}: {text}");
        }
        let error = found(URL, Some(Path::new("/nonexistent/pgpass")), &[]).unwrap_err();
        assert!(render(&error).contains("/nonexistent/pgpass"), "{}", render(&error));
    }
}
