//! Files of this machine and servers that it can reach.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, bail};

use super::fetch::{CONTENT_BYTES_MAX, Fetch, FetchedContent};
use base::failure::{Class, Classify};
use base::files::read_at_most;
use transfer::download::{Downloader, RetryPolicy};

#[derive(Clone, Debug, Default)]
pub struct SystemFetch {
    authorities: Vec<String>,
    retry: RetryPolicy,
}

impl SystemFetch {
    /// Trusts the machine's certificate authorities and these, each as PEM.
    #[must_use]
    pub fn new(authorities: Vec<String>, retry: RetryPolicy) -> Self {
        Self { authorities, retry }
    }
}

impl Fetch for SystemFetch {
    fn file(&self, path: &Path) -> Result<FetchedContent> {
        let read = || -> Result<FetchedContent> {
            let metadata = std::fs::metadata(path)?;
            if !metadata.is_file() {
                // Opening a pipe would wait for its writer.
                bail!("it is not a regular file");
            }
            let readable_by_others = metadata.permissions().mode() & 0o004 != 0;
            Ok(FetchedContent { bytes: read_at_most(path, CONTENT_BYTES_MAX)?, readable_by_others })
        };
        read().class(Class::Invalid, || format!("reading {}", path.display()))
    }

    fn url(&self, url: &str) -> Result<Vec<u8>> {
        let hint = "Check the URL in the configuration and that this machine can reach the server.";
        let downloader = Downloader::trusting(url, self.retry, hint, &self.authorities)?;
        Ok(downloader.document(url, CONTENT_BYTES_MAX)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use std::fs::{self, Permissions};
    use std::io::{Read, Write};
    use std::time::Duration;
    use testing::http::{AUTHORITY, Answer, BodyDelivery, Fake};

    #[test]
    fn a_file_that_everybody_can_read_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "abc\n").unwrap();
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let content = SystemFetch::default().file(&path).unwrap();
            assert_eq!((content.bytes.as_slice(), content.readable_by_others), (&b"abc\n"[..], open));
        }
    }

    #[test]
    fn what_is_no_file_or_too_large_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, large) = (directory.path().join("pipe"), directory.path().join("large"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        fs::write(&large, vec![b'a'; 65 << 10]).unwrap();
        for path in [pipe, large, directory.path().join("absent")] {
            let Err(error) = SystemFetch::default().file(&path) else { panic!("{}", path.display()) };
            assert_eq!(class_of(&error), Class::Invalid);
            assert!(render(&error).contains(&*path.to_string_lossy()));
        }
    }

    #[test]
    fn a_server_that_does_not_stop_is_not_read_to_the_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/endless", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b'a'; 4096]).is_ok() {}
            }
        });
        let error = SystemFetch::default().url(&url).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
        assert!(render(&error).contains("more than 65536 bytes"), "{}", render(&error));
    }

    #[test]
    fn a_token_that_changes_while_its_transfer_breaks_is_never_a_mixture() {
        let server = Fake::start(|request| match request.before {
            0 => Answer::ok(b"old-token-old-token").with("ETag: \"1\"").in_manner(BodyDelivery::Cut(4)),
            _ => Answer::ok(b"new-token-new-token").with("ETag: \"2\""),
        });
        let retry = RetryPolicy { pause: Duration::from_millis(1), ..RetryPolicy::default() };
        let machine = SystemFetch::new(Vec::new(), retry);
        assert_eq!(machine.url(&format!("{}/token", server.url())).unwrap(), b"new-token-new-token");
    }

    #[test]
    fn a_secret_behind_https_is_not_taken_from_where_there_is_no_tls() {
        let plain = Fake::start(|_| Answer::ok(b"token"));
        let to = plain.url();
        let server =
            Fake::with_tls(move |_| Answer::new(308, b"").with(&format!("Location: {to}/token?key=hush")));
        let machine = SystemFetch::new(vec![AUTHORITY.to_owned()], RetryPolicy::default());
        let error = machine.url(&format!("{}/token", server.url())).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        for part in [&server.url(), &plain.url(), "without TLS"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("hush") && plain.requests("").is_empty(), "{text}");
    }
}
