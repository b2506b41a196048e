//! The page in headless Chromium. Without Chromium and without `CI` the tests are left out, and say so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scene::{Scene, TOKEN};
use crate::server::serve;
use testing::programs;

pub(crate) const PROBE: &str = include_str!("probe.js");
/// A slow machine starts a browser slowly.
const LIMIT: Duration = Duration::from_secs(180);

/// The path of Chromium; without it, prints that `test` is left out.
pub(crate) fn chromium(test: &str) -> Option<PathBuf> {
    let found = programs::find("chromium");
    if found.is_none() {
        programs::leave_out(test, "chromium is not on this machine");
    }
    found
}

/// Opens a page in a browser with these arguments; returns its output.
fn browse(chromium: &Path, url: &str, dark: bool, size: (u32, u32), arguments: &[String]) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--run-all-compositor-stages-before-draw",
            "--force-device-scale-factor=1",
        ])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!("--window-size={},{}", size.0, size.1))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .args(arguments)
        .arg(url)
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text).map(|_| text)
    });
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("chromium is at {url} for {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    reader.join().unwrap().unwrap()
}

/// The URL for a browser without a cookie.
pub(crate) fn entry(address: &str) -> String {
    format!("{address}/fleet?token={TOKEN}")
}

fn scenes() -> [(&'static str, Scene); 5] {
    [
        ("under-way", Scene::under_way()),
        ("failure", Scene::failure()),
        ("finished", Scene::finished()),
        ("empty", Scene::new(&[])),
        ("hostile", Scene::hostile()),
    ]
}

#[test]
fn no_page_hinders_anybody_on_a_phone_or_a_desktop_in_light_or_dark() {
    let Some(chromium) = chromium("no_page_hinders_anybody_on_a_phone_or_a_desktop_in_light_or_dark") else {
        return;
    };
    for (name, scene) in scenes() {
        let address = serve(Arc::new(scene), PROBE, |_, _| {});
        for (width, dark, hash) in [(320, false, "#phone"), (1280, true, "")] {
            let arguments = ["--virtual-time-budget=1500".to_owned(), "--dump-dom".into()];
            let url = format!("{}{hash}", entry(&address));
            let page = browse(&chromium, &url, dark, (1280, 800), &arguments);
            let found = findings(&page);
            assert_eq!(found["findings"], serde_json::json!([]), "{name} at {width} pixels, dark: {dark}");
            assert_eq!((&found["dark"], &found["width"]), (&dark.into(), &width.into()), "{name}");
            assert!(found["seen"].as_u64().unwrap() > 5, "{found}");
        }
    }
}

/// The findings that the probe wrote into the page.
fn findings(page: &str) -> Value {
    let (_, rest) =
        page.split_once("<pre id=\"findings\">").unwrap_or_else(|| panic!("no findings in {page}"));
    let text = rest.split_once("</pre>").unwrap().0;
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_open_page_follows_what_happens() {
    let Some(chromium) = chromium("an_open_page_follows_what_happens") else { return };
    let before = |scene: &Scene, path: &str| {
        if path == "/fleet/live" {
            scene.finish("rack1-node3");
        }
    };
    let address = serve(Arc::new(Scene::failure()), "", before);
    let arguments = ["--virtual-time-budget=7000".to_owned(), "--dump-dom".into()];
    let page = browse(&chromium, &entry(&address), false, (1280, 800), &arguments);
    // In the first page the machine was writing; the rest came by the script.
    assert!(page.contains("Rebooting") && !page.contains("Writing the OS image"), "{page}");
    assert!(page.contains(r#"<p id="link" role="status"></p>"#), "{page}");
    assert!(!page.contains(TOKEN), "{page}");
}

/// The ids of the machines on a page, in order.
fn machines(page: &str) -> Vec<&str> {
    page.split("<li id=\"m-").skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn a_page_that_gets_changes_alone_is_the_same_as_a_whole_one() {
    let Some(chromium) = chromium("a_page_that_gets_changes_alone_is_the_same_as_a_whole_one") else {
        return;
    };
    static POLLS: AtomicUsize = AtomicUsize::new(0);
    // Every answer has a change, beginning with the second one.
    let before = |scene: &Scene, path: &str| {
        if path == "/fleet/live" {
            match POLLS.fetch_add(1, Ordering::SeqCst) {
                1 => scene.finish("rack1-node1"),
                2 => scene.finish("rack1-node2"),
                3 => scene.finish("rack3-node1"),
                _ => {}
            }
        }
    };
    let scene = Arc::new(Scene::under_way());
    let address = serve(scene.clone(), "", before);
    let arguments = ["--virtual-time-budget=14000".to_owned(), "--dump-dom".into()];
    let page = browse(&chromium, &entry(&address), false, (1280, 800), &arguments);
    assert!(POLLS.load(Ordering::SeqCst) > 4, "it was asked too seldom");
    assert!(!page.contains("data-same"), "a machine without its content: {page}");
    let whole = String::from_utf8(scene.get("/fleet/live").body).unwrap();
    assert_eq!(machines(&page), machines(&whole));
    assert_eq!(page.matches("Rebooting</span>").count(), whole.matches("Rebooting</span>").count());
    let summary = |page: &str| {
        let (_, rest) = page.split_once("<ul id=\"summary\"").unwrap();
        rest.split_once("</ul>").unwrap().0.to_owned()
    };
    assert_eq!(summary(&page), summary(&whole));
}

#[test]
fn the_boxes_of_a_page_choose_the_machines_that_it_goes_on_with() {
    let Some(chromium) = chromium("the_boxes_of_a_page_choose_the_machines_that_it_goes_on_with") else {
        return;
    };
    const CHOOSE: &str = "setTimeout(() => { const box = document.querySelector('#filter [name=text]'); box.value = 'rack2'; box.dispatchEvent(new Event('input', { bubbles: true })); }, 500);";
    let before = |scene: &Scene, path: &str| {
        if path == "/fleet/live" {
            scene.finish("rack1-node1");
        }
    };
    let scene = Arc::new(Scene::under_way());
    let address = serve(scene.clone(), CHOOSE, before);
    let arguments = ["--virtual-time-budget=9000".to_owned(), "--dump-dom".into()];
    let page = browse(&chromium, &entry(&address), false, (1280, 800), &arguments);
    assert_eq!(machines(&page).len(), 3, "{page}");
    assert!(page.contains("rack2-node1") && !page.contains("rack1-node1"), "{page}");
    assert!(page.contains(r#"<p id="link" role="status"></p>"#), "{page}");
}

/// Pictures for people to look at, in the target directory; `docs/images` has two of them.
#[test]
fn pictures_can_be_taken_of_every_state() {
    let Some(chromium) = chromium("pictures_can_be_taken_of_every_state") else { return };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, scene) in scenes() {
        let failed = (name == "failure").then(|| scene.path_of(1));
        let address = serve(Arc::new(scene), "", |_, _| {});
        let mut pages = vec![(name.to_owned(), entry(&address))];
        if let Some(path) = failed {
            pages.push(("failed-machine".into(), format!("{address}{path}?token={TOKEN}")));
        }
        for (name, url) in pages {
            for (device, size, dark) in [("phone", (390, 1700), true), ("desktop", (1280, 1100), false)] {
                let file = directory.join(format!("{name}-{device}.png"));
                let _ = std::fs::remove_file(&file);
                let arguments = [format!("--screenshot={}", file.display())];
                browse(&chromium, &url, dark, size, &arguments);
                let picture = std::fs::read(&file).unwrap();
                // PNG (W3C), 11.2.2: the header has width and height.
                let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
                assert_eq!((number(16), number(20)), size, "{}", file.display());
            }
        }
    }
}
