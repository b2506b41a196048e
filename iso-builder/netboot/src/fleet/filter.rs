//! Which machines of the fleet a request asks for, by the query of its URL.

use base::percent;

use model::config::Role;

use super::stage::{MachineStage, StageGroup};
use super::view::MachineRow;

/// A value of [`MachineFilter`] for machines without a cluster, or without a rack. No address and no label is written so.
pub const NONE: &str = "-";

/// What a machine has to match: one value of each key that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFilter {
    stages: Vec<MachineStage>,
    groups: Vec<StageGroup>,
    roles: Vec<Role>,
    clusters: Vec<String>,
    racks: Vec<String>,
    names: Vec<String>,
    /// Parts of any text of a machine, in lower case.
    texts: Vec<String>,
}

/// The first value of each key, as the boxes of the page show it.
#[derive(Clone, Copy, Debug)]
pub struct FilterBoxes<'a> {
    pub stage: Option<MachineStage>,
    pub role: Option<Role>,
    pub group: Option<StageGroup>,
    pub cluster: Option<&'a str>,
    pub rack: Option<&'a str>,
    pub text: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuery {
    #[error("{0} is not a key; there are {1}")]
    Key(String, &'static str),
    #[error("{0} is not a stage; there are {known}", known = MachineStage::ALL.map(MachineStage::name).join(", "))]
    Stage(String),
    #[error("{0} is not a group; there are {known}", known = StageGroup::ALL.map(StageGroup::name).join(", "))]
    Group(String),
    #[error("{0} is not a role; there are {known}", known = Role::ALL.map(Role::name).join(", "))]
    Role(String),
    #[error("{value} is not a value of {key}; there are {known}")]
    Word { key: &'static str, value: String, known: String },
    #[error("{value} is not a value of {key}; it has to be a number from 1 to {most}")]
    Number { key: &'static str, value: String, most: usize },
    #[error("{0} is not the id of a machine")]
    Machine(String),
    #[error("{0} is not percent-encoded UTF-8")]
    Encoding(String),
}

/// The pairs of a query or a form, as they were sent, in order and without empty values: a form sends them for what is not chosen.
pub fn pairs(query: &str) -> Result<Vec<(&str, String)>, InvalidQuery> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let decoded = |(key, value): (_, &str)| {
        // In a query of a form `+` is a space.
        let text = percent::decode(&value.replace('+', " "));
        Ok((key, text.ok_or_else(|| InvalidQuery::Encoding(value.to_owned()))?))
    };
    pairs.filter(|(_, value)| !value.is_empty()).map(decoded).collect()
}

impl MachineFilter {
    /// The keys of a filter, for messages.
    pub const KEYS: &str = "stage, group, role, cluster, rack, name and text";

    /// A whole query that has no other keys.
    pub fn of(query: &str) -> Result<Self, InvalidQuery> {
        let mut filter = Self::default();
        for (key, value) in pairs(query)? {
            if !filter.add(key, &value)? {
                return Err(InvalidQuery::Key(key.to_owned(), Self::KEYS));
            }
        }
        Ok(filter)
    }

    /// Adds a pair of a query. Returns whether its key is one of a filter.
    pub fn add(&mut self, key: &str, value: &str) -> Result<bool, InvalidQuery> {
        let owned = || value.to_owned();
        match key {
            "stage" => {
                let stage = MachineStage::of_name(value);
                self.stages.push(stage.ok_or_else(|| InvalidQuery::Stage(owned()))?);
            }
            "group" => {
                let group = StageGroup::of_name(value);
                self.groups.push(group.ok_or_else(|| InvalidQuery::Group(owned()))?);
            }
            "role" => {
                let role = Role::of_name(value);
                self.roles.push(role.ok_or_else(|| InvalidQuery::Role(owned()))?);
            }
            "cluster" => self.clusters.push(owned()),
            "rack" => self.racks.push(owned()),
            "name" => self.names.push(owned()),
            "text" => self.texts.push(value.to_lowercase()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The pairs that make the same filter.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let groups = self.groups.iter().map(|group| ("group", group.name()));
        let stages = self.stages.iter().map(|stage| ("stage", stage.name()));
        let roles = self.roles.iter().map(|role| ("role", role.name()));
        let mut pairs: Vec<_> = groups.chain(stages).chain(roles).collect();
        let texts = [
            ("cluster", &self.clusters),
            ("rack", &self.racks),
            ("name", &self.names),
            ("text", &self.texts),
        ];
        pairs.extend(
            texts.into_iter().flat_map(|(key, values)| values.iter().map(move |value| (key, &**value))),
        );
        pairs
    }

    /// The same filter with one group, or with any.
    #[must_use]
    pub fn with_group(mut self, group: Option<StageGroup>) -> Self {
        self.groups = group.into_iter().collect();
        self
    }

    /// The same filter with one cluster; [`NONE`] stands for machines without any.
    #[must_use]
    pub fn with_cluster(mut self, cluster: &str) -> Self {
        self.clusters = vec![cluster.to_owned()];
        self
    }

    /// The same filter with one rack; [`NONE`] stands for machines without any.
    #[must_use]
    pub fn with_rack(mut self, rack: &str) -> Self {
        self.racks = vec![rack.to_owned()];
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    #[must_use]
    pub fn boxes(&self) -> FilterBoxes<'_> {
        FilterBoxes {
            stage: self.stages.first().copied(),
            role: self.roles.first().copied(),
            group: self.groups.first().copied(),
            cluster: self.clusters.first().map(String::as_str),
            rack: self.racks.first().map(String::as_str),
            text: self.texts.first().map_or("", String::as_str),
        }
    }

    #[must_use]
    pub fn matches(&self, row: &MachineRow) -> bool {
        fn any<T>(wanted: &[T], matches: impl Fn(&T) -> bool) -> bool {
            wanted.is_empty() || wanted.iter().any(matches)
        }
        any(&self.stages, |stage| *stage == row.stage)
            && any(&self.groups, |group| *group == row.group)
            && any(&self.roles, |role| row.role.as_deref() == Some(role.name()))
            && any(&self.clusters, |cluster| *cluster == row.cluster.as_deref().unwrap_or(NONE))
            && any(&self.racks, |rack| *rack == row.rack.as_deref().unwrap_or(NONE))
            && any(&self.names, |name| name.eq_ignore_ascii_case(&row.name))
            && any(&self.texts, |text| contains(row, text))
    }
}

/// True if a text by which people know the machine, or one that it reports, has this part.
fn contains(row: &MachineRow, text: &str) -> bool {
    let marks = row.identity.to_string();
    let places = [row.cluster.as_ref(), row.rack.as_ref()];
    let texts = [Some(&row.name), Some(&marks), row.configuration.as_ref(), row.product.as_ref()];
    let texts = texts.into_iter().chain(places);
    let causes = row.error.iter().flat_map(|error| &error.causes);
    let addresses = row.clients.iter().map(|client| &client.address);
    let all = texts.chain([row.message.as_ref(), row.next.as_ref()]).flatten();
    all.chain(causes).chain(addresses).any(|one| one.to_lowercase().contains(text))
}
