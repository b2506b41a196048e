//! The reference page of the cluster file, made from the types: `docs/reference/cluster-file-keys.md`, and its published
//! schema. The tests fail when they are not what the types say; `UPDATE_GOLDEN=1` writes them.

use serde_json::Value;

use super::places::{MOVED, SHARED_ONLY};
use crate::config::reference::{KeyRows, drift, record};
use document::shape::inline_schema;

/// Where the schema has a part of an install configuration, whose keys have a page of their own.
const PARTS: [&str; 3] = [
    "/properties/cluster",
    "/properties/templates/additionalProperties",
    "/properties/pools/items/properties/machines/items/properties/overrides",
];

fn page() -> String {
    let mut schema = inline_schema::<super::ClusterFile>();
    for part in PARTS {
        if let Some(Value::Object(keys)) =
            schema.pointer_mut(part).and_then(|part| part.get_mut("properties"))
        {
            keys.retain(|key, _| key == "name");
        }
    }
    let mut rows = KeyRows::default();
    record(&schema, "", &mut rows);
    let shared: Vec<_> = SHARED_ONLY.iter().map(|key| format!("`{key}`")).collect();
    let moved = MOVED.iter().map(|(key, why, instead)| {
        let instead = if instead.is_empty() { String::new() } else { format!("`{instead}`") };
        format!("| `{key}` | {instead} | {why} |\n")
    });
    format!(
        "# Every key of a cluster file\n\n\
         Made from the types of `crates/model/src/cluster_file`; [`clusters.md`](../how-to/clusters.md) tells what a cluster file is \
         and how its parts are merged. `[]` stands for each element of a list, `*` for each key of a map.\n\n\
         | Key | Value | Default | Meaning |\n|---|---|---|---|\n{}\n\n\
         The rest of `cluster`, each template and `overrides` have the keys of an install configuration, in their \
         places: [`configuration-keys.md`](configuration-keys.md) lists them. Templates and `overrides` have \
         `os`, `install` and `kubernetes`.\n\n\
         ## For `cluster` only\n\nAll nodes share these: {}.\n\n\
         ## In none of them\n\n| Key | Instead | Why |\n|---|---|---|\n{}",
        rows.text(),
        shared.join(", "),
        moved.collect::<String>()
    )
}

#[test]
fn the_page_is_what_the_types_say() {
    let page = page();
    drift("reference/cluster-file-keys.md", &page);
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    assert!(rows.clone().count() > 15 && rows.clone().all(|line| !line.ends_with("|  |")), "{page}");
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    drift("reference/cluster-file.schema.json", &(super::json_schema() + "\n"));
}
