//! One page of the machines that match: their order, their sections, and what is on this page of it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::filter::MachineFilter;
use super::query::{MachineGrouping, MachineOrder, PageQuery};
use super::stage::StageGroup;
use super::view::{MachineRow, StageCount};

/// A page of a list.
#[derive(Clone, Debug)]
pub struct FleetListing<'a> {
    /// The machines that match, on all pages.
    pub matching: usize,
    /// From 1, and no greater than `pages`.
    pub page: usize,
    /// At least 1.
    pub pages: usize,
    /// How many machines are on the pages before.
    pub before: usize,
    /// Those that have a machine on this page.
    pub sections: Vec<FleetSection<'a>>,
}

/// A section of the list, and those of its machines that are on the page.
#[derive(Clone, Debug)]
pub struct FleetSection<'a> {
    pub key: SectionKey<'a>,
    /// The machines of the section on all pages.
    pub count: usize,
    /// Them by groups, without empty ones.
    pub groups: Vec<StageCount>,
    pub rows: Vec<&'a MachineRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionKey<'a> {
    Group(StageGroup),
    /// None for machines without a cluster.
    Cluster(Option<&'a str>),
    /// None for machines without a rack.
    Rack(Option<&'a str>),
}

impl<'a> FleetListing<'a> {
    #[must_use]
    pub fn new(machines: &'a [Arc<MachineRow>], query: &PageQuery) -> Self {
        let mut rows = matching(machines, &query.filter);
        let key = |row| SectionKey::of(row, query.by);
        rows.sort_by(|one, other| {
            key(one).compare(&key(other)).then_with(|| compare(one, other, query.sort))
        });
        let pages = rows.len().div_ceil(query.size).max(1);
        let page = query.page.min(pages);
        let before = (page - 1) * query.size;
        let shown = rows.iter().skip(before).take(query.size).copied();
        let mut sections: Vec<FleetSection<'a>> = Vec::new();
        for row in shown {
            let key = key(row);
            match sections.last_mut() {
                Some(section) if section.key == key => section.rows.push(row),
                _ => sections.push(FleetSection { key, count: 0, groups: Vec::new(), rows: vec![row] }),
            }
        }
        let mut counts: HashMap<SectionKey<'_>, [usize; StageGroup::ALL.len()]> =
            sections.iter().map(|section| (section.key, Default::default())).collect();
        for row in &rows {
            if let Some(count) =
                counts.get_mut(&key(row)).and_then(|counts| counts.get_mut(row.group.place()))
            {
                *count += 1;
            }
        }
        for section in &mut sections {
            let counts = counts.get(&section.key).copied().unwrap_or_default();
            section.count = counts.iter().sum();
            section.groups = StageCount::all(counts);
        }
        Self { matching: rows.len(), page, pages, before, sections }
    }

    /// The number of machines on this page.
    #[must_use]
    pub fn shown(&self) -> usize {
        self.sections.iter().map(|section| section.rows.len()).sum()
    }
}

/// The machines that match, in the order in which they are.
#[must_use]
pub fn matching<'a>(machines: &'a [Arc<MachineRow>], filter: &MachineFilter) -> Vec<&'a MachineRow> {
    machines.iter().map(|row| &**row).filter(|row| filter.matches(row)).collect()
}

impl<'a> SectionKey<'a> {
    fn of(row: &'a MachineRow, by: MachineGrouping) -> Self {
        match by {
            MachineGrouping::Group => Self::Group(row.group),
            MachineGrouping::Cluster => Self::Cluster(row.cluster.as_deref()),
            MachineGrouping::Rack => Self::Rack(row.rack.as_deref()),
        }
    }

    /// Groups are in the order of the page. What has no cluster or rack comes last.
    fn compare(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Group(one), Self::Group(other)) => one.place().cmp(&other.place()),
            (Self::Cluster(one) | Self::Rack(one), Self::Cluster(other) | Self::Rack(other)) => {
                compare_places(one, other)
            }
            // All keys of a list are of one kind.
            _ => Ordering::Equal,
        }
    }
}

/// The order of clusters or racks. None comes last.
#[must_use]
pub fn compare_places(one: Option<&str>, other: Option<&str>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => natural(one, other),
        _ => one.is_none().cmp(&other.is_none()),
    }
}

/// The order of two machines, which is never the same for two.
#[must_use]
pub fn compare(one: &MachineRow, other: &MachineRow, order: MachineOrder) -> Ordering {
    let first = match order {
        MachineOrder::Attention => {
            let key = |row: &MachineRow| (row.group.place(), !row.silent);
            key(one).cmp(&key(other))
        }
        MachineOrder::Name => Ordering::Equal,
        MachineOrder::Stage => one.stage.cmp(&other.stage),
        MachineOrder::LatestSeen => other.moments.seen.cmp(&one.moments.seen),
        MachineOrder::EarliestSeen => one.moments.seen.cmp(&other.moments.seen),
    };
    first.then_with(|| natural(&one.name, &other.name)).then_with(|| one.id.cmp(&other.id))
}

/// Text with its numbers compared as numbers, so that `node-10` follows `node-9`.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        let (a, b) = match (one, other) {
            ([], []) => return Ordering::Equal,
            ([], _) => return Ordering::Less,
            (_, []) => return Ordering::Greater,
            ([a, ..], [b, ..]) => (a, b),
        };
        let (order, steps) = if a.is_ascii_digit() && b.is_ascii_digit() {
            let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (long, other_long) = (digits(one), digits(other));
            let bare = |text: &'_ [u8]| text.iter().take_while(|byte| **byte == b'0').count();
            let (zeros, other_zeros) = (bare(&one[..long]), bare(&other[..other_long]));
            let (number, second) = (&one[zeros..long], &other[other_zeros..other_long]);
            // A longer number without zeros before it is a greater one. Of equal numbers that with fewer zeros is first.
            let order = number
                .len()
                .cmp(&second.len())
                .then_with(|| number.cmp(second))
                .then(zeros.cmp(&other_zeros));
            (order, (long, other_long))
        } else {
            (a.cmp(b), (1, 1))
        };
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (&one[steps.0..], &other[steps.1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let sorted = [
            "",
            "a",
            "a1",
            "a01",
            "a2",
            "a10",
            "a10b",
            "b",
            "rack-2-node-9",
            "rack-2-node-10",
            "rack-10-node-1",
        ];
        for (place, one) in sorted.iter().enumerate() {
            for (other_place, other) in sorted.iter().enumerate() {
                assert_eq!(natural(one, other), place.cmp(&other_place), "{one} {other}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn the_order_of_names_is_one(one in "[a01-]{0,6}", other in "[a01-]{0,6}", third in "[a01-]{0,6}") {
            proptest::prop_assert_eq!(natural(&one, &other), natural(&other, &one).reverse());
            proptest::prop_assert_eq!(natural(&one, &other) == Ordering::Equal, one == other);
            if natural(&one, &other).is_le() && natural(&other, &third).is_le() {
                proptest::prop_assert!(natural(&one, &third).is_le());
            }
        }
    }
}
