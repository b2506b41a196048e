//! Patches that are made and applied, and what becomes of wrong ones.

use proptest::prelude::*;

use super::format::DeltaError;
use super::make::{SegmentSizes, make, make_in};
use super::*;

fn noise(length: usize, mut state: u64) -> Vec<u8> {
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// An eighth of what images are cut up by.
const SMALL: SegmentSizes = SegmentSizes { segment: 4 << 20, margin: 8 << 20 };

/// The new image has what the old one has, but further behind than a part of [`SMALL`] reaches, and something of its own.
fn pair() -> (Vec<u8>, Vec<u8>) {
    let old = noise(28 << 20, 1);
    let new = [&vec![0; 13 << 20], &noise(50_000, 2), &old[..]].concat();
    (old, new)
}

fn patch(old: &Vec<u8>, new: &Vec<u8>) -> Vec<u8> {
    let mut patch = Vec::new();
    make(old, new, 2, &mut patch).unwrap();
    patch
}

fn apply(patch: &[u8], old: &Vec<u8>) -> Result<Vec<u8>, DeltaError> {
    let mut out = Vec::new();
    Patch::open(patch)?.apply(old, &mut out).map(|()| out)
}

#[test]
fn content_that_moved_far_costs_nothing() {
    let (old, new) = pair();
    let mut patch = Vec::new();
    make_in(SMALL, &old, &new, 2, &mut patch).unwrap();
    assert!(patch.len() < 200_000, "{} bytes", patch.len());
    assert!(apply(&patch, &old).unwrap() == new);
    let opened = Patch::open(&patch[..]).unwrap();
    assert_eq!((opened.old().length, opened.new_image().length), (old.len() as u64, new.len() as u64));
    // A slot is longer than its image.
    let slot = [&old[..], &[7; 5000]].concat();
    assert!(apply(&patch, &slot).unwrap() == new);
}

#[test]
fn another_old_image_is_refused_and_nothing_wrong_is_written() {
    let old = noise(300_000, 1);
    let new = [&old[..200_000], &noise(9000, 5), &old[200_000..]].concat();
    let patch = patch(&old, &new);
    let mut rotten = old.clone();
    rotten[250_000] ^= 1;
    let mut out = Vec::new();
    let error = Patch::open(&patch[..]).unwrap().apply(&rotten, &mut out).unwrap_err();
    assert!(matches!(error, DeltaError::WrongSegment(0)) && out.is_empty(), "{error}");
    let short = old[..299_999].to_vec();
    assert!(matches!(apply(&patch, &short), Err(DeltaError::OtherImage { .. })));
    assert!(matches!(apply(&patch[1..], &old), Err(DeltaError::NotPatch)));
    let longer = [&patch[..], b"x"].concat();
    assert!(matches!(apply(&longer, &old), Err(DeltaError::Damaged(_))));
}

#[test]
fn empty_images_and_equal_ones_have_patches() {
    let some = noise(100_000, 3);
    for (old, new) in [(vec![], vec![]), (vec![], some.clone()), (some.clone(), vec![]), (some.clone(), some)]
    {
        assert!(apply(&patch(&old, &new), &old).unwrap() == new);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_garbled_patch_never_gives_a_wrong_image(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4),
        early in any::<bool>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let old = noise(40_000, 1);
        let new = [&old[..20_000], &[9; 3000][..], &old[25_000..]].concat();
        let mut patch = patch(&old, &new);
        for (at, change) in changes {
            let at = at.index(if early { 144 } else { patch.len() });
            patch[at] ^= change;
        }
        if let Some(cut) = cut {
            patch.truncate(cut.index(patch.len()));
        }
        if let Ok(result) = apply(&patch, &old) {
            prop_assert!(result == new, "what is accepted is right");
        }
    }
}
