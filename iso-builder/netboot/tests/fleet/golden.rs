//! The HTML of pages. `UPDATE_GOLDEN=1 cargo test -p netboot --test fleet` writes it anew.

use std::path::Path;

use crate::scene::Scene;

fn compare(name: &str, scene: &Scene, path: &str) -> String {
    let reply = scene.get(path);
    assert_eq!(reply.status, 200, "{path}");
    let html = scene.anonymous(&without_version(&String::from_utf8(reply.body).unwrap()));
    let text = line_per_tag(&html);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleet/golden").join(name);
    testing::golden::compare(file, &text);
    html
}

/// The version of the list is another one at each start of a server.
fn without_version(html: &str) -> String {
    let Some((before, rest)) = html.split_once("data-version=\"") else { return html.to_owned() };
    format!("{before}data-version=\"{}", &rest[rest.find('"').unwrap()..])
}

/// Puts each tag that follows another one on a line of its own.
fn line_per_tag(html: &str) -> String {
    let parts = html.split('>').map(|part| match part.trim_start_matches('\n') {
        tag if tag.starts_with('<') => format!("\n{tag}"),
        _ => part.to_owned(),
    });
    let lines = parts.collect::<Vec<_>>().join(">");
    format!("{}\n", lines.trim())
}

#[test]
fn an_install_under_way() {
    let scene = Scene::under_way();
    let page = compare("under-way.html", &scene, "/fleet/live");
    for text in ["62 %", "Seeding", "silent", "Unknown", "Redeploy", "8.2 GiB", "Joining"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_failure_with_its_log_one_link_away() {
    let scene = Scene::failure();
    let page = compare("failure.html", &scene, "/fleet/live");
    assert!(page.contains(r##"href="/fleet/machines/m1#log""##), "{page}");
    assert!(page.contains("Not joined") && page.contains("another node of this name"), "{page}");
    let machine = compare("failed-machine.html", &scene, &scene.path_of(1));
    assert!(machine.contains("id=\"log\"") && machine.contains("critical medium error"), "{machine}");
}

#[test]
fn a_finished_cluster() {
    let page = compare("finished.html", &Scene::finished(), "/fleet");
    assert!(page.contains("<strong>6</strong> installed"), "{page}");
    assert_eq!(page.matches("</svg>Joined").count(), 6, "{page}");
}

#[test]
fn a_fleet_without_machines_says_what_to_do_next() {
    let page = compare("empty.html", &Scene::new(&[]), "/fleet/live");
    assert!(page.contains("Let the machine boot from the network"), "{page}");
}

#[test]
fn what_machines_say_stays_text() {
    let scene = Scene::hostile();
    let pages = [
        compare("hostile.html", &scene, "/fleet/live"),
        compare("hostile-machine.html", &scene, &scene.path_of(0)),
    ];
    for page in pages {
        for markup in ["<script>", "<img", "\u{202e}", "onmouseover=\"", "</p><"] {
            let harmless =
                if markup == "</p><" { page.contains("</p><script") } else { page.contains(markup) };
            assert!(!harmless, "{markup}: {page}");
        }
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    }
}
