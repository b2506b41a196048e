//! The floor of a node: the lowest rollback index that a release for it may have. It follows what can still start, so that it never
//! outlaws the other slot or the recovery system.

use model::boot::record::SlotState;
use model::rollback_index::RollbackIndex;

/// What the floor depends on in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorSlot {
    /// What the boot record says of it; none for the recovery system.
    pub state: Option<SlotState>,
    /// That of the release in its boot volume; none if it has no whole one.
    pub index: Option<RollbackIndex>,
}

/// The lowest index of all releases in `slots`: also that of one that is staged, which may still be tried, and of one that failed, which
/// somebody may start. None if a slot that should start cannot be read, because its index is not known then.
#[must_use]
pub fn floor(slots: [FloorSlot; 3]) -> Option<RollbackIndex> {
    let unknown = |slot: &FloorSlot| {
        slot.index.is_none() && !matches!(slot.state, Some(SlotState::Empty | SlotState::Bad))
    };
    if slots.iter().any(unknown) {
        return None;
    }
    slots.iter().filter_map(|slot| slot.index).min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATES: [SlotState; 4] = [SlotState::Empty, SlotState::Try, SlotState::Good, SlotState::Bad];

    fn state() -> impl Strategy<Value = SlotState> {
        prop::sample::select(&STATES[..])
    }

    fn index() -> impl Strategy<Value = Option<RollbackIndex>> {
        prop::option::of((0_u32..4).prop_map(RollbackIndex))
    }

    /// What happens to the slots of a node.
    #[derive(Clone, Copy, Debug)]
    enum SlotEvent {
        /// A release with this index is offered and written into the slot that does not run, as far as the floor lets it; `whole` if the
        /// power stays on.
        Update { index: u32, whole: bool },
        /// The staged release is tried.
        Try { good: bool },
        /// The other slot starts.
        Start,
        /// The recovery system is renewed; `whole` if the power stays on.
        Renew { whole: bool },
        /// A good boot remembers.
        Remember,
    }

    fn event() -> impl Strategy<Value = SlotEvent> {
        prop_oneof![
            (0_u32..5, any::<bool>()).prop_map(|(index, whole)| SlotEvent::Update { index, whole }),
            any::<bool>().prop_map(|good| SlotEvent::Try { good }),
            Just(SlotEvent::Start),
            any::<bool>().prop_map(|whole| SlotEvent::Renew { whole }),
            Just(SlotEvent::Remember),
        ]
    }

    /// Slots A and B and the recovery system, and what the node remembers.
    struct Node {
        slots: [FloorSlot; 3],
        running: usize,
        floor: RollbackIndex,
    }

    impl Node {
        fn installed(index: u32) -> Self {
            let slot = |state, index: Option<u32>| FloorSlot { state, index: index.map(RollbackIndex) };
            let slots = [
                slot(Some(SlotState::Good), Some(index)),
                slot(Some(SlotState::Empty), None),
                slot(None, Some(index)),
            ];
            Self { slots, running: 0, floor: RollbackIndex::default() }
        }

        fn come(&mut self, event: SlotEvent) {
            let other = 1 - self.running;
            let whole_slot = |slot: FloorSlot| slot.index.is_some();
            match event {
                SlotEvent::Update { index, whole } if RollbackIndex(index) >= self.floor => {
                    let index = whole.then_some(RollbackIndex(index));
                    self.slots[other] = FloorSlot { state: Some(SlotState::Empty), index };
                }
                SlotEvent::Try { good: true } if whole_slot(self.slots[other]) => {
                    self.slots[other].state = Some(SlotState::Good);
                    self.running = other;
                }
                SlotEvent::Try { good: false } if whole_slot(self.slots[other]) => {
                    self.slots[other].state = Some(SlotState::Bad);
                }
                SlotEvent::Start if self.slots[other].state == Some(SlotState::Good) => self.running = other,
                SlotEvent::Renew { whole } if self.slots[other].state == Some(SlotState::Good) => {
                    self.slots[2].index = self.slots[self.running].index.filter(|_| whole);
                }
                SlotEvent::Remember => self.floor = self.floor.max(floor(self.slots).unwrap_or_default()),
                _ => {}
            }
        }
    }

    proptest! {
        #[test]
        fn the_floor_is_above_no_release_that_can_start_and_follows_from_all_of_them(
            a in (state(), index()), b in (state(), index()), recovery in index(),
        ) {
            let slot = |(state, index)| FloorSlot { state: Some(state), index };
            let slots = [slot(a), slot(b), FloorSlot { state: None, index: recovery }];
            let found = floor(slots);
            let indexes: Vec<_> = slots.iter().filter_map(|slot| slot.index).collect();
            if let Some(floor) = found {
                prop_assert!(indexes.iter().all(|index| *index >= floor) && indexes.contains(&floor));
            }
            let starts = |state| matches!(state, SlotState::Good | SlotState::Try);
            let unread = recovery.is_none() || [a, b].iter().any(|(state, index)| starts(*state) && index.is_none());
            prop_assert_eq!(found.is_none(), unread);
        }

        #[test]
        fn nothing_that_can_start_is_ever_below_the_floor(
            installed in 0_u32..4, events in prop::collection::vec(event(), 0..40),
        ) {
            let mut node = Node::installed(installed);
            for event in events {
                let before = node.floor;
                node.come(event);
                prop_assert!(node.floor >= before);
                for slot in node.slots {
                    prop_assert!(slot.index.is_none_or(|index| index >= node.floor), "{event:?} {slot:?}");
                }
            }
        }
    }

    #[test]
    fn the_floor_rises_with_the_second_release_that_has_the_index() {
        let mut node = Node::installed(0);
        let update = |node: &mut Node, index| {
            let update = SlotEvent::Update { index, whole: true };
            let renew = SlotEvent::Renew { whole: true };
            for event in [update, SlotEvent::Try { good: true }, renew, SlotEvent::Remember] {
                node.come(event);
            }
            node.floor.0
        };
        let indexes = [0, 1, 1, 3, 2, 2];
        let floors = indexes.map(|index| update(&mut node, index));
        assert_eq!(floors, [0, 0, 1, 1, 2, 2]);
    }
}
