//! What a signature says of a release in its trusted comment: fields `name:value`, with tabs between them, as minisign writes its
//! own (`timestamp`, `file`, `hashed`).

use jiff::Timestamp;

use formats::minisign::{PublicKey, SIGNATURE_BYTES, Signature};
use model::release::{MANIFEST, Release};

const TIMESTAMP: &str = "timestamp";
const PRODUCT: &str = "product";
const VERSION: &str = "version";
const ROLLBACK_INDEX: &str = "rollback_index";

/// Signs the manifest of `release`, whose bytes are `manifest`, with `key`, which signs by `sign`: see [`Signature::make`]. `when`
/// is the moment of the signature, which it says of itself.
///
/// # Errors
/// Those of `sign`.
pub fn sign_release<E>(
    release: &Release,
    manifest: &[u8],
    when: Timestamp,
    key: &PublicKey,
    sign: impl FnMut(&[u8]) -> Result<[u8; SIGNATURE_BYTES], E>,
) -> Result<Signature, E> {
    let Release { id, version, rollback_index, .. } = release;
    let second = when.as_second();
    let comment = format!(
        "{TIMESTAMP}:{second}\tfile:{MANIFEST}\t{PRODUCT}:{id}\t{VERSION}:{version}\t{ROLLBACK_INDEX}:{rollback_index}\thashed"
    );
    Signature::make(
        key,
        manifest,
        &format!("{id} {version}, signed with the key {}", key.id()),
        &comment,
        sign,
    )
}

/// The fields that a trusted comment has; none of them has to be there, because signatures of minisign itself name no product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignatureStatement<'a> {
    pub when: Option<Timestamp>,
    product: Option<&'a str>,
    version: Option<&'a str>,
    rollback_index: Option<&'a str>,
}

impl<'a> SignatureStatement<'a> {
    #[must_use]
    pub fn of(comment: &'a str) -> Self {
        let field = |name: &str| {
            let value = |field: &'a str| field.strip_prefix(name)?.strip_prefix(':');
            comment.split('\t').find_map(value)
        };
        let when = field(TIMESTAMP).and_then(|second| Timestamp::from_second(second.parse().ok()?).ok());
        let (product, version, rollback_index) = (field(PRODUCT), field(VERSION), field(ROLLBACK_INDEX));
        Self { when, product, version, rollback_index }
    }

    /// What it says of another release than `release`, as words: `version 1.2.0`.
    #[must_use]
    pub fn contradiction(&self, release: &Release) -> Option<String> {
        let differs = |what, said: Option<&str>, is: &str| {
            said.filter(|said| *said != is).map(|said| format!("{what} {}", said.escape_debug()))
        };
        differs(PRODUCT, self.product, &release.id)
            .or_else(|| differs(VERSION, self.version, &release.version))
            .or_else(|| {
                differs("a rollback index of", self.rollback_index, &release.rollback_index.to_string())
            })
    }
}
