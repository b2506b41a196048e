//! The page of a large fleet in a browser that is driven as a person does: at every width, with the keyboard alone, without
//! scripts, and judged by axe-core (<https://github.com/dequelabs/axe-core>).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use testing::programs;

use crate::browser::{PROBE, chromium, entry};
use crate::devtools::Tab;
use crate::scene::Scene;
use crate::server::serve;

/// Three pages of machines, in six racks and three clusters.
const SOME: u32 = 240;
const MANY: u32 = 10_000;
const WIDTHS: [(u32, u32); 4] = [(320, 640), (768, 1024), (1280, 800), (1920, 1080)];

/// The pages that have machines in them, in states that operators see: paths with their queries.
const PAGES: [&str; 4] = [
    "/fleet",
    "/fleet?by=cluster&size=25&choose=yes",
    "/fleet?by=rack&group=failed&page=2&size=3",
    "/fleet?text=nobody",
];

/// Chromium and axe-core; without them, prints that `test` is left out.
fn tools(test: &str) -> Option<(PathBuf, String)> {
    let chromium = chromium(test)?;
    let axe = programs::axe();
    if axe.is_none() {
        programs::leave_out(test, "axe-core is not on this machine");
    }
    Some((chromium, std::fs::read_to_string(axe?).unwrap()))
}

/// A browser that is in a fleet of so many machines, and the address of its server.
fn visit(chromium: &Path, machines: u32) -> (Tab, String) {
    let address = serve(Arc::new(Scene::large(machines)), "", |_, _| {});
    let mut tab = Tab::open(chromium);
    tab.resize(1280, 800);
    tab.visit(&entry(&address));
    (tab, address)
}

/// What axe-core finds on the page, and the probe of the other tests of pages, and what is wider than the window.
fn judge(tab: &mut Tab, axe: &str, what: &str) {
    tab.value(&format!("{axe}\nundefined"));
    let found = tab.value(
        "axe.run(document, { resultTypes: ['violations'] }).then((found) => ({ kept: found.passes.length, broken: found.violations.map((one) => \
         `${one.id}: ${one.help}: ${one.nodes.slice(0, 5).map((node) => node.html).join(' | ')}`) }))",
    );
    assert_eq!(found["broken"], json!([]), "{what}");
    assert!(found["kept"].as_u64().unwrap() > 20, "{what}: {found}");
    tab.value(&format!("{{ {PROBE} }}"));
    let found = tab.value("document.getElementById('findings').textContent");
    let found: Value = serde_json::from_str(found.as_str().unwrap()).unwrap();
    assert_eq!(found["findings"], json!([]), "{what}");
    tab.value("document.getElementById('findings').remove()");
    let wider = tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(wider, 0, "{what}");
}

/// Judges these pages at these sizes and in these color schemes, with those of an action on several machines.
fn judge_all(tab: &mut Tab, address: &str, axe: &str, pages: &[&str], views: &[((u32, u32), &str)]) {
    let look = |tab: &mut Tab, ((width, height), scheme): ((u32, u32), &str)| {
        tab.resize(width, height);
        tab.prefer(scheme);
    };
    for page in pages {
        for view in views {
            look(tab, *view);
            tab.visit(&format!("{address}{page}"));
            judge(tab, axe, &format!("{page} in {view:?}"));
        }
    }
    tab.visit(&format!("{address}/fleet?choose=yes&size=500"));
    tab.value("document.querySelector('#bulk select').value = 'redeploy'");
    tab.value("document.querySelector('#bulk [value=matching]').click()");
    tab.wait("document.querySelector('.ask-all form')");
    for view in views {
        look(tab, *view);
        judge(tab, axe, &format!("the question in {view:?}"));
    }
    let count = tab.value("document.querySelector('.ask-all [name=count]').pattern");
    tab.value(&format!("document.querySelector('.ask-all [name=count]').value = {count}"));
    tab.value("document.querySelector('.ask-all .danger').click()");
    tab.wait("document.querySelector('#h-done')");
    for view in views {
        look(tab, *view);
        judge(tab, axe, &format!("the outcome in {view:?}"));
    }
}

#[test]
fn the_pages_of_a_large_fleet_fit_every_width_and_axe_finds_nothing_in_them() {
    let test = "the_pages_of_a_large_fleet_fit_every_width_and_axe_finds_nothing_in_them";
    let Some((chromium, axe)) = tools(test) else { return };
    let (mut tab, address) = visit(&chromium, SOME);
    let views = [(WIDTHS[0], "light"), (WIDTHS[2], "dark")];
    judge_all(&mut tab, &address, &axe, &PAGES[1..2], &views);
}

/// The ids and names of the focused element and its ring.
const FOCUS: &str = "(() => {
    const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
    const order = [...document.querySelectorAll('a[href], button, select, summary, input:not([type=hidden]), [tabindex]')];
    return {
        place: order.indexOf(at),
        ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        what: at.outerHTML.slice(0, 120),
    };
})()";

#[test]
fn everything_on_the_page_of_a_large_fleet_is_done_with_the_keyboard_alone() {
    let test = "everything_on_the_page_of_a_large_fleet_is_done_with_the_keyboard_alone";
    let Some(chromium) = chromium(test) else { return };
    let (mut tab, address) = visit(&chromium, SOME);
    tab.visit(&format!("{address}/fleet?size=25"));
    // The first key leads to the link that goes past the head, and then on in the order of the page.
    tab.press("Tab");
    assert_eq!(tab.value("document.activeElement.matches('.skip')"), true);
    let mut last = -1;
    for _ in 0..120 {
        let focus = tab.value(FOCUS);
        if focus["place"] == -1 {
            break;
        }
        let place = focus["place"].as_i64().unwrap();
        assert!(place > last && focus["ring"] == true && focus["seen"] == true, "after {last}: {focus}");
        last = place;
        tab.press("Tab");
    }
    assert!(last > 40, "only {last} elements");
    // Past the head, into the list.
    tab.visit(&format!("{address}/fleet?size=25"));
    tab.press("Tab");
    tab.press("Enter");
    tab.press("Tab");
    assert_eq!(tab.value("document.getElementById('main').contains(document.activeElement)"), true);
    // A filter, which is in the URL and in the history.
    tab.tab_to("#filter [name=text]");
    for letter in ["n", "o", "d", "e", "-", "7"] {
        tab.press(letter);
    }
    tab.wait("location.search.includes('text=node-7') && document.querySelectorAll('.machine').length === 6");
    tab.press("Enter");
    tab.tab_to("#filter [name=rack]");
    tab.press("Down");
    tab.wait("location.search.includes('rack=rack-1') && document.querySelectorAll('.machine').length === 1");
    tab.value("history.back()");
    tab.wait("!location.search.includes('rack=') && document.querySelectorAll('.machine').length === 6");
    assert_eq!(tab.value("document.querySelector('#filter [name=text]').value"), "node-7");
    assert_eq!(tab.value("document.querySelector('#filter [name=rack]').value"), "");
    redeploy_two(&mut tab);
}

/// Chooses two machines that have joined and has them installed again, on a page with six machines.
fn redeploy_two(tab: &mut Tab) {
    tab.tab_to("#extent a:last-child");
    tab.press("Enter");
    tab.wait("document.getElementById('bulk')");
    let names: Vec<String> = (2..4)
        .map(|number| {
            tab.tab_to(&format!(".machine:has(details):nth-child({number}) .choose input"));
            tab.press("Space");
            tab.value("document.activeElement.closest('.machine').querySelector('h3').textContent")
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    tab.tab_to("#bulk select");
    tab.press("r");
    tab.tab_to("#bulk button.main");
    tab.press("Enter");
    tab.wait("document.querySelector('.ask-all form')");
    let text = tab.value("document.body.innerText");
    let text = text.as_str().unwrap();
    assert!(
        text.contains("Redeploy 2 machines?") && names.iter().all(|name| text.contains(name)),
        "{names:?} {text}"
    );
    tab.tab_to(".ask-all [name=count]");
    tab.press("2");
    tab.tab_to(".ask-all button.danger");
    tab.press("Enter");
    tab.wait("document.querySelector('#h-done')");
    let text = tab.value("document.body.innerText");
    assert!(text.as_str().unwrap().contains("Redeploy: 2 of 2 machines done"), "{text}");
    tab.tab_to(".back a");
    tab.press("Enter");
    tab.wait("document.querySelectorAll('.is-waiting.machine').length === 2");
}

#[test]
fn a_browser_without_scripts_filters_pages_and_acts() {
    let Some(chromium) = chromium("a_browser_without_scripts_filters_pages_and_acts") else { return };
    let (mut tab, address) = visit(&chromium, SOME);
    tab.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    tab.visit(&format!("{address}/fleet?size=50"));
    assert_eq!(tab.value("typeof follow"), "undefined");
    tab.tab_to("#extent [rel=next]");
    tab.press("Enter");
    tab.wait("document.querySelector('.pages [aria-current]').textContent === 'Page 2'");
    tab.tab_to("#filter [name=text]");
    for letter in ["n", "o", "d", "e", "-", "7"] {
        tab.press(letter);
    }
    tab.press("Enter");
    tab.wait("document.querySelectorAll('.machine').length === 6");
    redeploy_two(&mut tab);
}

/// A fleet of ten thousand machines: the same as for hundreds, a page that is no larger, and pictures in the target directory.
#[test]
#[ignore = "makes ten thousand machines; `make soak` runs it"]
fn a_page_of_ten_thousand_machines_is_as_large_as_one_of_hundreds() {
    let test = "a_page_of_ten_thousand_machines_is_as_large_as_one_of_hundreds";
    let Some((chromium, axe)) = tools(test) else { return };
    let (mut tab, address) = visit(&chromium, MANY);
    assert!(tab.value("document.body.innerText").as_str().unwrap().contains("of 10000 machines"));
    let elements = |tab: &mut Tab, address: &str| {
        tab.visit(&format!("{address}/fleet?group=installed"));
        // Updates leave nothing behind.
        tab.value("(async () => { for (let at = 0; at < 5; at += 1) { tag = ''; await update(); } })()");
        tab.value("document.querySelectorAll('*:not(option)').length").as_u64().unwrap()
    };
    let many = elements(&mut tab, &address);
    let (mut other, few) = visit(&chromium, SOME);
    let few = elements(&mut other, &few);
    drop(other);
    assert!(many < few + 50, "{many} elements and {few}");
    pictures(&mut tab, &address);
    let views = WIDTHS.map(|size| [(size, "light"), (size, "dark")]).concat();
    judge_all(&mut tab, &address, &axe, &PAGES, &views);
}

fn pictures(tab: &mut Tab, address: &str) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, page) in
        [("list", "/fleet"), ("clusters", "/fleet?by=cluster"), ("choose", "/fleet?rack=rack-7&choose=yes")]
    {
        for (width, height) in [(320, 1400), (768, 1200), (1280, 1000), (1920, 1080)] {
            tab.resize(width, height);
            tab.prefer(if width == 768 { "dark" } else { "light" });
            tab.visit(&format!("{address}{page}"));
            let file = directory.join(format!("many-{name}-{width}.png"));
            tab.picture(&file, false);
            let picture = std::fs::read(&file).unwrap();
            // PNG (W3C), 11.2.2: the header has width and height.
            let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
            assert_eq!((number(16), number(20)), (width, height), "{}", file.display());
        }
    }
    tab.visit(&format!("{address}/fleet?rack=rack-7&choose=yes"));
    tab.value("document.querySelector('#bulk select').value = 'redeploy'");
    tab.value("document.querySelector('#bulk [value=matching]').click()");
    tab.wait("document.querySelector('.ask-all form')");
    for (width, height) in [(320, 1400), (1280, 1000)] {
        tab.resize(width, height);
        tab.picture(&directory.join(format!("many-question-{width}.png")), false);
    }
}
