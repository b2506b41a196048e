//! The customization of a medium (`custom.img`), and whether it is trusted.
//!
//! The file has no digest in the release manifest, and it can contain configurations, files for root and trusted authorities. So
//! the one of a medium on a server is used only if it cannot have been changed on the way: over https, or with the digest of the
//! kernel parameter `nqrust.custom`. `gather` calls this, for `plan`, `preflight` and `install`.

use std::io::{self, Read};

use anyhow::Result;

use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use medium::customization::area::{self, AreaDamage};
use medium::customization::{Content, FILE};
use medium::payload_sources::{PayloadSource, PayloadTransport};
use model::boot::parameter::CUSTOM;

/// The result of reading a customization.
#[derive(Debug)]
pub(crate) enum Customized {
    /// There is none: the medium is as it was built.
    Not,
    /// It is not trusted; why, and what to do about it.
    LeftOut(String),
    With(Content),
}

/// Reads the customization of `source`. `expected` is the SHA-256 of the whole file, for a medium on a server.
pub(crate) fn read(source: &dyn PayloadSource, expected: Option<Digest>) -> Result<Customized> {
    let transport = source.transport();
    let expected = expected.filter(|_| transport != PayloadTransport::Local);
    let area = source.beside(FILE)?;
    let content = match (area, expected) {
        (None, Some(_)) => return Err(absent(source).into()),
        (None, None) => return Ok(Customized::Not),
        (Some(area), Some(expected)) => area::read(&*checked(source, area, expected)?),
        (Some(area), None) if transport == PayloadTransport::Clear => {
            let used = area::is_used(area).class(Class::Network, || reading(source))?;
            return Ok(if used { Customized::LeftOut(left_out(source)) } else { Customized::Not });
        }
        (Some(area), None) => area::read(area),
    };
    match content {
        Ok(content) => Ok(content.map_or(Customized::Not, Customized::With)),
        // An error of a server or a disk does not mean that the file is damaged.
        Err(AreaDamage::Read(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Err(error).class(Class::Verification, || reading(source))
        }
        Err(damage) => Err(damage.failure(reading(source)).into()),
    }
}

/// The whole file, if it has this digest.
fn checked(source: &dyn PayloadSource, file: impl Read, expected: Digest) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that it is too long.
    file.take(area::LENGTH + 1).read_to_end(&mut bytes).class(Class::Network, || reading(source))?;
    let found = Digest::of(&bytes);
    let why = match bytes.len() as u64 > area::LENGTH {
        true => format!("it has more than {} bytes", area::LENGTH),
        false if found == expected => return Ok(bytes),
        false => format!("its SHA-256 is {found}, and the kernel parameter {CUSTOM} says {expected}"),
    };
    let hint =
        "Serve the file that is meant, or correct the parameter: `sha256sum custom.img` prints the digest.";
    Err(Failure::new(Class::Verification, reading(source))
        .because(anyhow::anyhow!("{why}"))
        .hint(hint)
        .into())
}

fn absent(source: &dyn PayloadSource) -> Failure {
    let what = format!("{} has no {FILE}, and the kernel parameter {CUSTOM} requires it", source.describe());
    Failure::new(Class::Network, what)
        .hint("Put the file beside release.json on the server, or leave the parameter out.")
}

fn left_out(source: &dyn PayloadSource) -> String {
    format!(
        "{FILE} of {} is left out, with the configurations, files and certificates in it: it was read \
            without TLS, so it could have been changed on the way; serve the medium over https://, or give \
            the digest of the file with the kernel parameter {CUSTOM}=sha256:HEX",
        source.describe()
    )
}

fn reading(source: &dyn PayloadSource) -> String {
    format!("reading {FILE}, the customization of {}", source.describe())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use medium::payload_sources::{HttpMedium, LocalMedium, RetryPolicy};
    use model::config::Secret;
    use testing::http::{AUTHORITY, Answer, Fake, Request};

    fn content() -> Content {
        let nodes = [("default.yaml".to_owned(), Secret::new("os: {hostname: customized}\n"))].into();
        let authorities = [("own.pem".to_owned(), "a certificate".to_owned())].into();
        Content { nodes, authorities, ..Content::default() }
    }

    /// The file of a medium, padded with zeros.
    fn file(content: &Content) -> Vec<u8> {
        let mut bytes = area::bytes(content).unwrap();
        bytes.resize(usize::try_from(area::LENGTH).unwrap(), 0);
        bytes
    }

    fn server(file: Option<Vec<u8>>, tls: bool) -> (Fake, HttpMedium) {
        let answer = move |_: &Request| match &file {
            Some(bytes) => Answer::ok(bytes),
            None => Answer::new(404, b""),
        };
        let fake = if tls { Fake::with_tls(answer) } else { Fake::start(answer) };
        let medium = HttpMedium::open(&fake.url(), &[AUTHORITY.to_owned()], RetryPolicy::default()).unwrap();
        (fake, medium)
    }

    #[test]
    fn what_came_over_http_without_a_digest_is_left_out_and_said_to_be() {
        let (fake, medium) = server(Some(file(&content())), false);
        let Customized::LeftOut(why) = read(&medium, None).unwrap() else { panic!("it counts") };
        for part in
            ["custom.img", &fake.url(), "left out", "without TLS", "https://", "nqrust.custom=sha256:"]
        {
            assert!(why.contains(part), "{part} in {why}");
        }
        // Damage does not matter in an untrusted file.
        let (_fake, medium) = server(Some(b"GARBAGE".to_vec()), false);
        assert!(matches!(read(&medium, None).unwrap(), Customized::LeftOut(_)));
    }

    #[test]
    fn a_medium_over_http_that_was_not_customized_is_passed_over_in_silence() {
        for file in [None, Some(file(&Content::default())), Some(Vec::new())] {
            let (_fake, medium) = server(file, false);
            assert!(matches!(read(&medium, None).unwrap(), Customized::Not));
        }
    }

    #[test]
    fn what_has_the_digest_of_the_parameter_counts_over_http_and_https() {
        let file = file(&content());
        for tls in [false, true] {
            let (_fake, medium) = server(Some(file.clone()), tls);
            let Customized::With(found) = read(&medium, Some(Digest::of(&file))).unwrap() else { panic!() };
            assert_eq!(found, content());
        }
        let (_fake, medium) = server(Some(file), true);
        assert!(matches!(read(&medium, None).unwrap(), Customized::With(_)), "https needs no digest");
    }

    #[test]
    fn what_has_another_digest_than_that_of_the_parameter_ends_the_install() {
        let demanded = Digest::of(b"other");
        let mut long = file(&content());
        long.push(0);
        for (tls, file) in [(false, file(&content())), (true, file(&content())), (false, long)] {
            let (_fake, medium) = server(Some(file), tls);
            let error = read(&medium, Some(demanded)).unwrap_err();
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Verification, "{text}");
            assert!(text.contains("custom.img") && text.contains("next: "), "{text}");
        }
        let (_fake, medium) = server(None, false);
        let error = read(&medium, Some(demanded)).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
        assert!(render(&error).contains("nqrust.custom requires it"), "{}", render(&error));
    }

    #[test]
    fn the_parameter_is_about_media_on_servers_only() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), file(&content())).unwrap();
        let medium = LocalMedium::new(directory.path());
        for digest in [None, Some(Digest::of(b"other"))] {
            assert!(matches!(read(&medium, digest).unwrap(), Customized::With(_)));
        }
    }
}
