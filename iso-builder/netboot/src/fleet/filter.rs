//! Which machines of the fleet a request asks for, by the query of its URL.

use base::percent;

use model::config::Role;

use super::stage::{MachineStage, StageGroup};
use super::view::MachineRow;

/// The keys that a form can send without a value.
const KEYS: [&str; 5] = ["stage", "group", "role", "name", "text"];

/// The keys of a query; a machine has to match one value of each key that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFilter {
    stages: Vec<MachineStage>,
    groups: Vec<StageGroup>,
    roles: Vec<Role>,
    names: Vec<String>,
    /// Parts of any text of a machine, in lower case.
    texts: Vec<String>,
    /// The version of the list that the client has.
    pub since: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFilter {
    #[error("{0} is not a filter; there are stage, group, role, name and text, and since")]
    Key(String),
    #[error("{0} is not a stage; there are {known}", known = MachineStage::ALL.map(MachineStage::name).join(", "))]
    Stage(String),
    #[error("{0} is not a group; there are {known}", known = StageGroup::ALL.map(StageGroup::name).join(", "))]
    Group(String),
    #[error("{0} is not a role; there are {known}", known = Role::ALL.map(Role::name).join(", "))]
    Role(String),
    #[error("{0} is not percent-encoded UTF-8")]
    Encoding(String),
}

impl MachineFilter {
    /// `query` as it was sent. A form sends empty values, which match everything.
    pub fn of(query: &str) -> Result<Self, InvalidFilter> {
        let mut filter = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.is_empty() && KEYS.contains(&key) {
                continue;
            }
            // In a query of a form `+` is a space.
            let spaced = value.replace('+', " ");
            let value = percent::decode(&spaced).ok_or_else(|| InvalidFilter::Encoding(value.to_owned()))?;
            match key {
                "stage" => {
                    let stage = MachineStage::of_name(&value);
                    filter.stages.push(stage.ok_or(InvalidFilter::Stage(value))?);
                }
                "group" => {
                    let group = StageGroup::of_name(&value);
                    filter.groups.push(group.ok_or(InvalidFilter::Group(value))?);
                }
                "role" => {
                    let role = Role::of_name(&value);
                    filter.roles.push(role.ok_or(InvalidFilter::Role(value))?);
                }
                "since" => filter.since = Some(value),
                "name" => filter.names.push(value),
                "text" => filter.texts.push(value.to_lowercase()),
                _ => return Err(InvalidFilter::Key(key.to_owned())),
            }
        }
        Ok(filter)
    }

    /// The query of the page, which a token may be part of.
    pub fn of_page(query: &str) -> Result<Self, InvalidFilter> {
        let pairs: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("token=")).collect();
        Self::of(&pairs.join("&"))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        Self { since: None, ..self.clone() } == Self::default()
    }

    /// The first value of each box of the page: stage, role, group and text.
    #[must_use]
    pub fn boxes(&self) -> (Option<MachineStage>, Option<Role>, Option<StageGroup>, &str) {
        let text = self.texts.first().map_or("", String::as_str);
        (self.stages.first().copied(), self.roles.first().copied(), self.groups.first().copied(), text)
    }

    #[must_use]
    pub fn matches(&self, row: &MachineRow) -> bool {
        fn any<T>(wanted: &[T], matches: impl Fn(&T) -> bool) -> bool {
            wanted.is_empty() || wanted.iter().any(matches)
        }
        any(&self.stages, |stage| *stage == row.stage)
            && any(&self.groups, |group| *group == row.group)
            && any(&self.roles, |role| row.role.as_deref() == Some(role.name()))
            && any(&self.names, |name| name.eq_ignore_ascii_case(&row.name))
            && any(&self.texts, |text| contains(row, text))
    }
}

/// True if a text by which people know the machine, or one that it reports, has this part.
fn contains(row: &MachineRow, text: &str) -> bool {
    let marks = row.identity.to_string();
    let texts = [Some(&row.name), Some(&marks), row.configuration.as_ref(), row.product.as_ref()];
    let causes = row.error.iter().flat_map(|error| &error.causes);
    let addresses = row.clients.iter().map(|client| &client.address);
    let all = texts.into_iter().chain([row.message.as_ref(), row.next.as_ref()]).flatten();
    all.chain(causes).chain(addresses).any(|one| one.to_lowercase().contains(text))
}
