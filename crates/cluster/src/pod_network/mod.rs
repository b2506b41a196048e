//! `installer pod-network`: pods of different nodes reach each other by routes over the management network (`network: routes`).
//!
//! The controller manager gives each node a network for its pods. Each node has a bridge with that network, made by the standard
//! plugins of the Container Network Interface, and a route to each other node's; all nodes have to be in one segment. [`node_watch`]
//! asks the API for the nodes, [`nodes`] makes routes of them, [`system`] brings them about. While the API is away everything
//! stays as it is.

mod nodes;
mod system;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use self::nodes::PodRoutes;
use super::node_watch;
use crate::kubernetes::node::Node;
use base::command::Runner;
use machine::installed_node::InstalledNode;
use model::config::Cidr;

const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps the pod network of the node at `root`, until the process ends. `say` receives what is new, a line each.
///
/// # Errors
/// The node's document cannot be read, or gives it no name.
pub fn run(root: &Path, runner: &dyn Runner, say: &mut dyn FnMut(&str)) -> Result<()> {
    let node = InstalledNode::open(root)?;
    node.warn(say);
    let name = node.name()?;
    let pods = node.config.install.pods();
    let mut kept = RoutedPods { root, runner, name, pods, last: None, told: Vec::new() };
    loop {
        // What is there by now can be something else: a device that goes takes its routes with it.
        kept.last = None;
        let followed = node_watch::follow(root, &mut |nodes| kept.fit(nodes, say));
        if let Err(why) = followed {
            kept.tell(vec![why], say);
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

struct RoutedPods<'a> {
    root: &'a Path,
    runner: &'a dyn Runner,
    name: String,
    /// The network of all pods.
    pods: Cidr,
    /// The last applied routes.
    last: Option<PodRoutes>,
    told: Vec<String>,
}

impl RoutedPods<'_> {
    /// Applies the routes to these nodes, unless they are applied already.
    fn fit(&mut self, nodes: &BTreeMap<String, Node>, say: &mut dyn FnMut(&str)) {
        let wanted = nodes::routes(&self.name, nodes);
        if self.last.as_ref() == Some(&wanted) {
            return;
        }
        let mut news = wanted.problems.clone();
        match system::bring(self.root, &wanted, self.pods, self.runner) {
            Ok(failed) => {
                let own = wanted.own.map_or("none yet".to_owned(), |own| own.to_string());
                let reached = wanted.others.len() - failed.len();
                news.insert(0, format!("pods of this node: {own}; routes to {reached} other nodes"));
                // A route that failed is tried again with the next change, and after the next list.
                self.last = failed.is_empty().then_some(wanted);
                news.extend(failed);
            }
            Err(error) => news.push(format!("{error:#}")),
        }
        self.tell(news, say);
    }

    /// Says only new lines.
    fn tell(&mut self, news: Vec<String>, say: &mut dyn FnMut(&str)) {
        for line in news.iter().filter(|line| !self.told.contains(line)) {
            say(line);
        }
        self.told = news;
    }
}

#[cfg(test)]
mod tests {
    use super::system::tests::{asked, system};
    use super::*;

    #[test]
    fn a_network_is_brought_again_only_where_it_may_have_changed_and_told_once() {
        let root = tempfile::tempdir().unwrap();
        let system = system();
        let nodes = r#"{"a": {"metadata": {"name": "a"}, "spec": {"podCIDR": "10.52.0.0/24"}},
            "b": {"metadata": {"name": "b"}, "spec": {"podCIDR": "10.52.1.0/24"},
                  "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.2"}]}}}"#;
        let nodes: BTreeMap<String, Node> = serde_json::from_str(nodes).unwrap();
        let mut kept = RoutedPods {
            root: root.path(),
            runner: &system,
            name: "a".to_owned(),
            pods: "10.52.0.0/16".parse().unwrap(),
            last: None,
            told: Vec::new(),
        };
        let mut said = Vec::new();
        let routes = || asked(&system).matches("replace 10.52.1.0/24").count();
        for (list, brought) in [(true, 1), (false, 1), (true, 2)] {
            if list {
                kept.last = None;
            }
            kept.fit(&nodes, &mut |line| said.push(line.to_owned()));
            assert_eq!(routes(), brought);
        }
        assert_eq!(said, ["pods of this node: 10.52.0.0/24; routes to 1 other nodes"]);
    }
}
