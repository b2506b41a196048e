//! bbolt database files, format version 2: read into a tree of buckets, and written from one.
//!
//! containerd keeps its metadata in such a file. The builder lets a real containerd make one, reads it, removes what
//! depends on the time of the build, and writes it anew so that the same content gives the same bytes. This is not a
//! database: no transactions, no updates in place, everything in memory.
//!
//! The layout is that of <https://github.com/etcd-io/bbolt> (`page.go`, `bucket.go`, `db.go`); numbers are
//! little-endian.

mod layout;
mod read;
mod write;

use std::collections::BTreeMap;

pub use read::read;
pub use write::write;

/// A bucket: keys with values, keys with buckets, and the counter that bbolt calls its sequence.
/// A key is in one of the two maps only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub buckets: BTreeMap<Vec<u8>, Bucket>,
    pub sequence: u64,
}

impl Bucket {
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.pairs.get(key.as_bytes()).map(Vec::as_slice)
    }

    /// The bucket at the end of `path`.
    #[must_use]
    pub fn bucket(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |bucket, key| bucket.buckets.get(key.as_bytes()))
    }
}

/// Why bytes are not a database, or a tree cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoltError {
    /// Neither meta page is valid.
    #[error("not a bolt database: neither of its meta pages is valid")]
    NoMeta,
    /// A page contradicts the format.
    #[error("page {page} of the bolt database is damaged: {what}")]
    Damaged { page: u64, what: &'static str },
    /// The tree exceeds a limit of the format.
    #[error("a bolt database cannot hold this: {0}")]
    Unwritable(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 1..most)
    }

    fn leaf_bucket() -> impl Strategy<Value = Bucket> {
        // Small values make inline buckets, large ones overflow pages, many of them branch pages.
        let value = prop_oneof![8 => bytes(40), 2 => bytes(600), 1 => bytes(9000)];
        (prop::collection::btree_map(bytes(30), value, 0..60), any::<u64>())
            .prop_map(|(pairs, sequence)| Bucket { pairs, buckets: BTreeMap::new(), sequence })
    }

    fn tree() -> impl Strategy<Value = Bucket> {
        leaf_bucket().prop_recursive(4, 40, 6, |inner| {
            (leaf_bucket(), prop::collection::btree_map(bytes(20), inner, 0..6)).prop_map(
                |(mut bucket, mut buckets)| {
                    buckets.retain(|key, _| !bucket.pairs.contains_key(key));
                    bucket.buckets = buckets;
                    bucket
                },
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_written_is_read_back(tree in tree()) {
            let file = write(&tree).unwrap();
            prop_assert_eq!(file.len() % layout::PAGE_SIZE, 0);
            prop_assert_eq!(&read(&file).unwrap(), &tree);
            prop_assert_eq!(write(&read(&file).unwrap()).unwrap(), file);
        }

        #[test]
        fn damaged_files_are_refused_or_read_and_never_panic(
            tree in tree(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let mut file = write(&tree).unwrap();
            // The meta pages keep their checksums; otherwise nothing behind them would be read.
            let body = 2 * layout::PAGE_SIZE;
            for (at, byte) in damage {
                let at = body + at.index(file.len() - body);
                file[at] = byte;
            }
            let _ = read(&file);
        }

        #[test]
        fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..20_000)) {
            prop_assert_eq!(read(&noise), Err(BoltError::NoMeta));
        }

        #[test]
        fn a_file_cut_short_never_panics(tree in tree(), keep in any::<prop::sample::Index>()) {
            let file = write(&tree).unwrap();
            let _ = read(&file[..keep.index(file.len())]);
        }
    }

    #[test]
    fn thousands_of_keys_make_branch_pages_over_branch_pages() {
        let pairs = (0..60_000u32).map(|n| (format!("key-{n:08}").into_bytes(), vec![7; 20])).collect();
        let tree = Bucket { pairs, ..Bucket::default() };
        assert_eq!(read(&write(&tree).unwrap()).unwrap(), tree);
    }

    #[test]
    fn keys_larger_than_a_page_have_branches_too() {
        let pairs = (0..9u8).map(|n| (vec![n; 9000], vec![n])).collect();
        let tree = Bucket { pairs, ..Bucket::default() };
        assert_eq!(read(&write(&tree).unwrap()).unwrap(), tree);
    }

    #[test]
    fn the_older_meta_page_serves_when_the_newer_one_is_damaged() {
        let pairs = BTreeMap::from([(b"k".to_vec(), b"v".to_vec())]);
        let tree = Bucket { pairs, ..Bucket::default() };
        for page in [0, 1] {
            let mut file = write(&tree).unwrap();
            file[page * layout::PAGE_SIZE + 20] ^= 1;
            assert_eq!(read(&file).unwrap(), tree, "meta page {page} damaged");
        }
    }

    #[test]
    fn a_key_that_is_value_and_bucket_at_once_is_refused() {
        let mut tree = Bucket::default();
        tree.pairs.insert(b"k".to_vec(), Vec::new());
        tree.buckets.insert(b"k".to_vec(), Bucket::default());
        assert!(matches!(write(&tree), Err(BoltError::Unwritable(_))));
    }

    #[test]
    fn an_empty_key_is_refused() {
        let mut tree = Bucket::default();
        tree.pairs.insert(Vec::new(), Vec::new());
        assert!(matches!(write(&tree), Err(BoltError::Unwritable(_))));
    }
}
