//! Disks, sizes and where payloads come from.

use super::{Checked, Fault, ensure};
use crate::size::ByteSize;

/// A size, as [`ByteSize`] reads it.
pub fn byte_size(text: &str) -> Checked {
    if text.parse::<ByteSize>().is_ok() && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let suggestion = text
        .strip_suffix("GB")
        .or(text.strip_suffix('G'))
        .map(|count| format!("{}Gi", count.trim()))
        .filter(|text| text.parse::<ByteSize>().is_ok());
    Err(Fault::new("is not a size: write a whole number with Ki, Mi, Gi or Ti, such as 150Gi")
        .suggest(suggestion))
}

/// The path of a disk: absolute, below `/dev`, without detours.
pub fn device(text: &str) -> Checked {
    let below = text.strip_prefix("/dev/").unwrap_or_default();
    let name = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    if text.len() <= 255 && below.split('/').all(name) {
        return Ok(());
    }
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    Err(Fault::new("is not the path of a disk below /dev, such as /dev/disk/by-id/…")
        .suggest(bare.then(|| format!("/dev/{text}"))))
}

/// An `http` or `https` URL with a host, and without credentials, which would be seen in logs.
pub fn medium_url(text: &str) -> Checked {
    let wrong = || Fault::new("is not an http:// or https:// URL");
    let rest = text.strip_prefix("http://").or(text.strip_prefix("https://")).ok_or_else(wrong)?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        let fault = Fault::new("carries a user name or password; a URL is no place for them");
        return Err(Fault { sensitive: true, ..fault });
    }
    let url = reqwest::Url::parse(text).map_err(|_| wrong())?;
    let clean = text.bytes().all(|b| b.is_ascii_graphic()) && !host.is_empty();
    ensure(url.host_str().is_some() && clean, "is not an http:// or https:// URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_unit_is_answered_with_the_binary_one() {
        assert_eq!(byte_size("150Gi"), Ok(()));
        assert_eq!(byte_size("150GB").unwrap_err().suggestion.as_deref(), Some("150Gi"));
        assert_eq!(byte_size("many").unwrap_err().suggestion, None);
    }

    #[test]
    fn a_device_is_a_path_below_dev() {
        for text in ["/dev/sda", "/dev/disk/by-id/ata-QEMU_1", "/dev/disk/by-path/pci-0000:00:1f.2"] {
            assert_eq!(device(text), Ok(()), "{text}");
        }
        for text in
            ["", "sda", "/dev", "/dev/", "/etc/passwd", "/dev/../etc", "/dev//sda", "dev/sda", "/dev/a b"]
        {
            assert!(device(text).is_err(), "{text:?}");
        }
        assert_eq!(device("sda").unwrap_err().suggestion.as_deref(), Some("/dev/sda"));
    }

    #[test]
    fn a_medium_is_an_http_url_without_credentials() {
        for text in ["http://192.0.2.1/media/", "https://example.org:8443/x"] {
            assert_eq!(medium_url(text), Ok(()), "{text}");
        }
        for text in
            ["", "ftp://a/", "http://", "http:///x", "http://a b/", "https://u:p@a/", "/mnt", "http://["]
        {
            assert!(medium_url(text).is_err(), "{text:?}");
        }
    }
}
