//! Circles among files, and among the entries of one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::imports::Imports;

/// Files or folders that import each other, and the edges between them: from, to, and the files and names that cause
/// it.
#[derive(Debug)]
pub struct Circle {
    pub rooms: BTreeSet<PathBuf>,
    pub arrows: Vec<(PathBuf, PathBuf, BTreeSet<String>)>,
}

impl fmt::Display for Circle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} rooms:", self.rooms.len())?;
        for (from, to, names) in &self.arrows {
            writeln!(out, "  {} -> {}", from.display(), to.display())?;
            for name in names {
                writeln!(out, "      {name}")?;
            }
        }
        Ok(())
    }
}

type Graph = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

#[must_use]
pub fn file_circles(imports: &Imports) -> Vec<Circle> {
    let mut graph = Graph::new();
    for ((from, to), names) in imports {
        graph.entry(from.clone()).or_default().entry(to.clone()).or_default().extend(names.iter().cloned());
    }
    circles(&graph)
}

/// The circles among the entries of each folder; a module's file and its folder are one entry. The file `mod.rs` is an
/// entry of its own beside the module's children.
#[must_use]
pub fn folder_circles(imports: &Imports) -> Vec<Circle> {
    let mut graphs: BTreeMap<PathBuf, Graph> = BTreeMap::new();
    for ((from, to), names) in imports {
        let Some((folder, from_room, to_room)) = rooms(from, to) else { continue };
        if from_room == to_room {
            continue;
        }
        let names = names.iter().map(|name| format!("{} -> {}: {name}", from.display(), to.display()));
        graphs
            .entry(folder)
            .or_default()
            .entry(from_room)
            .or_default()
            .entry(to_room)
            .or_default()
            .extend(names);
    }
    graphs.values().flat_map(circles).collect()
}

/// The deepest common folder of both, and the entries of it that contain them, without `.rs`.
fn rooms(from: &Path, to: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let mut folder = PathBuf::new();
    let mut from_steps = from.components();
    let mut to_steps = to.components();
    loop {
        let (one, other) = (from_steps.next()?, to_steps.next()?);
        let bare = |step: std::path::Component<'_>| Path::new(step.as_os_str()).with_extension("");
        if bare(one) != bare(other) {
            return Some((folder.clone(), folder.join(bare(one)), folder.join(bare(other))));
        }
        folder.push(bare(one));
    }
}

/// Strongly connected components of more than one node (Tarjan, SIAM J. Comput. 1(2), 1972).
fn circles(graph: &Graph) -> Vec<Circle> {
    let mut search = Search::new(graph);
    for room in graph.keys() {
        if !search.number.contains_key(room) {
            search.visit(room);
        }
    }
    search
        .found
        .into_iter()
        .map(|rooms| {
            let arrows = graph
                .iter()
                .filter(|(from, _)| rooms.contains(*from))
                .flat_map(|(from, targets)| {
                    targets
                        .iter()
                        .filter(|(to, _)| rooms.contains(*to))
                        .map(|(to, names)| (from.clone(), to.clone(), names.clone()))
                })
                .collect();
            Circle { rooms, arrows }
        })
        .collect()
}

struct Search<'a> {
    graph: &'a Graph,
    number: BTreeMap<PathBuf, usize>,
    path: Vec<PathBuf>,
    found: Vec<BTreeSet<PathBuf>>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, number: BTreeMap::new(), path: Vec::new(), found: Vec::new() }
    }

    fn visit(&mut self, room: &Path) -> usize {
        let number = self.number.len();
        self.number.insert(room.to_owned(), number);
        self.path.push(room.to_owned());
        let mut lowest = number;
        for next in self.graph.get(room).into_iter().flat_map(BTreeMap::keys) {
            if !self.number.contains_key(next) {
                lowest = lowest.min(self.visit(next));
            } else if self.path.contains(next) {
                lowest = lowest.min(self.number[next]);
            }
        }
        if lowest == number {
            let start = self.path.iter().position(|one| one == room).unwrap_or_default();
            let rooms: BTreeSet<_> = self.path.split_off(start).into_iter().collect();
            if rooms.len() > 1 {
                self.found.push(rooms);
            }
        }
        lowest
    }
}
