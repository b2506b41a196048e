//! Percent-encoding (RFC 3986, section 2.1), as it is in URLs and in the names of files for machines.

/// Text with every byte as `%XX` but letters, digits and `-._~`, which mean the same everywhere (section 2.3).
#[must_use]
pub fn encode(text: &str) -> String {
    encode_but(text, b"-._~")
}

/// The same, but the bytes `plain` stay as they are.
#[must_use]
pub fn encode_but(text: &str, plain: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || plain.contains(&byte);
    let write = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(write).collect()
}

/// Decodes `%XX`; none if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits;
            (digits, rest) = rest.split_at_checked(2)?;
            bytes.extend(hex::decode(digits).ok()?);
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}
