//! Random saves, and random damage to them.

use super::*;
use proptest::collection::{btree_map, vec as vec_of};
use proptest::prelude::*;

/// Contents that come up again and again, so that there is something to reuse.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let odd = vec_of(any::<u8>(), 0..200);
    let usual = (0..6_u8, 0..400_usize).prop_map(|(byte, len)| vec![byte; len / 100 * 100]);
    prop_oneof![usual, odd]
}

/// Return the sections of one save.
fn save() -> impl Strategy<Value = Vec<Content>> {
    let tag = prop_oneof![Just(BLOCK), Just(TOKENS), Just(Tag(*b"\0\xff\n0"))];
    let index = prop_oneof![0..5_u64, any::<u64>()];
    btree_map((tag, index), content(), 0..8)
        .prop_map(|sections| sections.into_iter().map(|((tag, index), bytes)| (tag, index, bytes)).collect())
}

/// Return a file after these saves.
fn file_after(saves: &[Vec<Content>]) -> Vec<u8> {
    let (first, rest) = saves.split_first().unwrap();
    let mut bytes = file(first);
    for contents in rest {
        let (next, written) = saved_again(&bytes, contents);
        let container = Container::parse(&next).unwrap();
        assert_eq!(container.waste(), written.waste);
        assert_eq!(container.generation(), written.generation);
        bytes = next;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_last_save_is_what_is_read(saves in vec_of(save(), 1..6)) {
        let bytes = file_after(&saves);
        let last = saves.last().unwrap();
        prop_assert_eq!(&read_all(&bytes).unwrap(), last);
        prop_assert_eq!(&read_all(&stream(last)).unwrap(), last);
    }

    #[test]
    fn damage_is_an_error_or_harmless(
        saves in vec_of(save(), 1..4),
        places in vec_of((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = file_after(&saves);
        let last = saves.last().unwrap();
        prop_assert!(read_all(&bytes[..cut.index(bytes.len())]).is_err());
        // Two places can be the two copies of one commit, but not when both lie behind them.
        for (place, change) in places {
            let at = 1536 + place.index(bytes.len() - 1536);
            bytes[at] = change;
        }
        if let Ok(found) = read_all(&bytes) {
            prop_assert_eq!(&found, last);
        }
    }
}
