//! What the query of a URL asks for: a page of the list, or a part of the JSON.

use base::percent;

use super::filter::{InvalidQuery, MachineFilter, pairs};
use crate::machines::id::MachineId;

/// The page; everything that belongs to it is below this path.
pub const PAGE: &str = "/fleet";
/// The machines of a page, unless its query says otherwise.
pub const SIZE: usize = 100;
/// The most machines of a page: they bound the memory of the browser that shows it.
pub const MOST_SIZE: usize = 500;
/// The most machines of one answer in JSON that a client can ask for; without a limit it gets all.
const MOST_LIMIT: usize = 10_000;

/// By what the machines of the page are divided into sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineGrouping {
    #[default]
    Group,
    Cluster,
    Rack,
}

base::names!(MachineGrouping { Group = "group", Cluster = "cluster", Rack = "rack" });

/// The order of machines within a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineOrder {
    /// What an operator has to look at comes first, then by name.
    #[default]
    Attention,
    Name,
    Stage,
    LatestSeen,
    EarliestSeen,
}

base::names!(MachineOrder {
    Attention = "attention",
    Name = "name",
    Stage = "stage",
    LatestSeen = "latest",
    EarliestSeen = "earliest",
});

/// The query of the page. Everything that it shows is in it, so that a bookmark and the back button lead to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery {
    pub filter: MachineFilter,
    pub by: MachineGrouping,
    pub sort: MachineOrder,
    /// From 1.
    pub page: usize,
    /// The machines of a page.
    pub size: usize,
    /// Whether machines can be chosen for an action.
    pub choose: bool,
    /// The version of the list that the script has.
    pub since: Option<String>,
}

impl Default for PageQuery {
    fn default() -> Self {
        let (filter, by, sort) = Default::default();
        Self { filter, by, sort, page: 1, size: SIZE, choose: false, since: None }
    }
}

impl PageQuery {
    const KEYS: &str = "stage, group, role, cluster, rack, name, text, by, sort, page, size and choose";

    /// `query` as it was sent. A token in it is left out.
    pub fn of(query: &str) -> Result<Self, InvalidQuery> {
        let mut all = Self::default();
        for (key, value) in pairs(query)? {
            match key {
                "token" => {}
                "by" => {
                    all.by = word(
                        "by",
                        value,
                        MachineGrouping::of_name,
                        &MachineGrouping::ALL.map(MachineGrouping::name),
                    )?
                }
                "sort" => {
                    all.sort = word(
                        "sort",
                        value,
                        MachineOrder::of_name,
                        &MachineOrder::ALL.map(MachineOrder::name),
                    )?
                }
                "page" => all.page = number("page", value, usize::MAX)?,
                "size" => all.size = number("size", value, MOST_SIZE)?,
                "choose" => {
                    all.choose = word("choose", value, |text| (text == "yes").then_some(true), &["yes"])?
                }
                "since" => all.since = Some(value),
                _ if all.filter.add(key, &value)? => {}
                _ => return Err(InvalidQuery::Key(key.to_owned(), Self::KEYS)),
            }
        }
        Ok(all)
    }

    /// The query as text, without what is its default.
    #[must_use]
    pub fn text(&self) -> String {
        let (page, size) = (self.page.to_string(), self.size.to_string());
        let fields = [
            (self.by != MachineGrouping::default()).then_some(("by", self.by.name())),
            (self.sort != MachineOrder::default()).then_some(("sort", self.sort.name())),
            (self.size != SIZE).then_some(("size", &*size)),
            self.choose.then_some(("choose", "yes")),
            (self.page > 1).then_some(("page", &*page)),
        ];
        encoded(self.filter.pairs().into_iter().chain(fields.into_iter().flatten()))
    }

    /// The URL of the page with this query.
    #[must_use]
    pub fn url(&self) -> String {
        let query = self.text();
        if query.is_empty() { PAGE.to_owned() } else { format!("{PAGE}?{query}") }
    }

    /// The URL of the first page with this filter.
    #[must_use]
    pub fn url_with(&self, filter: MachineFilter) -> String {
        Self { filter, page: 1, ..self.clone() }.url()
    }

    #[must_use]
    pub fn url_of_page(&self, page: usize) -> String {
        Self { page, ..self.clone() }.url()
    }

    /// The URL of the same page, where machines can be chosen or not.
    #[must_use]
    pub fn url_choosing(&self, choose: bool) -> String {
        Self { choose, ..self.clone() }.url()
    }
}

/// Pairs as a query.
pub fn encoded<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = pairs.map(|(key, value)| format!("{key}={}", percent::encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The query of `/v1/fleet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    pub filter: MachineFilter,
    /// The version of the list that the client has.
    pub since: Option<String>,
    /// The most machines of the answer, which are in the order of their ids then.
    pub limit: Option<usize>,
    /// The last machine of the answer before.
    pub after: Option<MachineId>,
}

impl ListQuery {
    const KEYS: &str = "stage, group, role, cluster, rack, name, text, since, limit and after";

    /// `query` as it was sent.
    pub fn of(query: &str) -> Result<Self, InvalidQuery> {
        let mut all = Self::default();
        for (key, value) in pairs(query)? {
            match key {
                "since" => all.since = Some(value),
                "limit" => all.limit = Some(number("limit", value, MOST_LIMIT)?),
                "after" => all.after = Some(value.parse().map_err(|_| InvalidQuery::Machine(value))?),
                _ if all.filter.add(key, &value)? => {}
                _ => return Err(InvalidQuery::Key(key.to_owned(), Self::KEYS)),
            }
        }
        Ok(all)
    }
}

fn word<T>(
    key: &'static str,
    value: String,
    of: impl Fn(&str) -> Option<T>,
    known: &[&str],
) -> Result<T, InvalidQuery> {
    of(&value).ok_or_else(|| InvalidQuery::Word { key, value, known: known.join(", ") })
}

fn number(key: &'static str, value: String, most: usize) -> Result<usize, InvalidQuery> {
    let number = value.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or(InvalidQuery::Number { key, value, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_query_leads_to_the_same_query() {
        for query in [
            "",
            "group=failed&stage=writing&role=worker&cluster=192.0.2.10&rack=rack-1&name=a&text=b+c%26d%3D%C3%A4",
            "rack=-&cluster=-&by=rack&sort=latest&size=25&choose=yes&page=7",
            "group=failed&group=unknown&text=one&text=two",
        ] {
            let read = PageQuery::of(query).unwrap();
            let url = read.url();
            let again = url.split_once('?').map_or("", |(_, query)| query);
            assert_eq!(PageQuery::of(again).unwrap(), read, "{query} {url}");
        }
        let empty =
            PageQuery::of("token=abc&group=&stage=&text=&by=group&sort=attention&size=100&page=1").unwrap();
        assert_eq!((empty.url(), empty == PageQuery::default()), ("/fleet".to_owned(), true));
    }

    #[test]
    fn a_value_that_means_nothing_is_named_with_those_that_do() {
        for (query, words) in [
            ("by=odd", "odd is not a value of by; there are group, cluster, rack"),
            ("sort=size", "there are attention, name, stage, latest, earliest"),
            ("size=0", "0 is not a value of size; it has to be a number from 1 to 500"),
            ("size=501", "from 1 to 500"),
            ("page=-1", "-1 is not a value of page"),
            ("limit=5", "limit is not a key; there are stage, group"),
            ("text=%zz", "is not percent-encoded"),
        ] {
            let error = PageQuery::of(query).unwrap_err().to_string();
            assert!(error.contains(words), "{query}: {error}");
        }
        for (query, words) in [
            ("limit=x", "x is not a value of limit"),
            ("limit=10001", "from 1 to 10000"),
            ("after=x", "x is not the id of a machine"),
            ("page=2", "page is not a key"),
        ] {
            let error = ListQuery::of(query).unwrap_err().to_string();
            assert!(error.contains(words), "{query}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_survives_its_url(text in "\\PC{1,30}", rack in "[A-Za-z0-9._-]{1,20}") {
            let filter = MachineFilter::default().with_rack(&rack);
            let query = PageQuery { filter, ..PageQuery::default() };
            let url = format!("{}&{}", query.url(), encoded([("text", &*text)].into_iter()));
            let read = PageQuery::of(url.split_once('?').unwrap().1).unwrap();
            proptest::prop_assert_eq!(read.filter.boxes().rack, Some(&*rack));
            proptest::prop_assert_eq!(read.filter.boxes().text, text.to_lowercase());
        }
    }
}
