// Keeps a page up to date: reloads the content of <main> and replaces only what has changed, so that focus, selected text,
// chosen machines and opened details stay. Without this script the page reloads itself.
"use strict";

const EVERY = 2000;
const main = document.getElementById("main");
const link = document.getElementById("link");
// The version of the list that the page came with.
let tag = versioned(main.querySelector(".head")?.dataset.version);
let since = "";
let query = location.search.slice(1);
// How much later it is by the server's clock, in milliseconds; null on pages that do not say what time it is.
let offset = null;

function versioned(version) {
  return version ? `W/"${version}"` : "";
}

/** Makes `old` like `fresh`, keeping every node of the same kind and id. */
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id || "") !== (fresh.id || "")) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.ELEMENT_NODE && (old.dataset.keep !== undefined || fresh.dataset.same !== undefined)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    // Opened details stay open.
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  morphChildren(old, fresh);
}

/** The machines that the page has, by their ids: one can move from one section to another. */
let cards = new Map();
/** Whether the server has left out a machine that the page does not have. */
let lacks = false;

/** Children with an id are found again wherever they are; others by their place. */
function morphChildren(old, fresh) {
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id ? known.get(child.id) || cards.get(child.id) : place && !place.id ? place : null;
    if (!same && child.dataset?.same !== undefined) lacks = true;
    if (same) {
      if (same !== place) old.insertBefore(same, place);
      place = same.nextSibling;
      morph(same, child);
    } else {
      old.insertBefore(child, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function say(text) {
  if (link.textContent !== text) link.textContent = text;
}

/** Makes the content of the page that of `fresh`, where machines that have not changed have only their place. */
function apply(fresh) {
  cards = new Map([...main.querySelectorAll("li.machine[id]")].map((card) => [card.id, card]));
  lacks = false;
  morphChildren(main, fresh);
  cards.clear();
}

/** A length of time as the server writes it. */
function duration(seconds) {
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${minutes} min`;
  if (seconds < 36000 && minutes % 60) return `${hours} h ${minutes % 60} min`;
  return seconds < 172800 ? `${hours} h` : `${Math.floor(seconds / 86400)} d`;
}

/** Shows how long ago everything is now. */
function age() {
  if (offset === null) return;
  const now = Date.now() + offset;
  for (const time of main.querySelectorAll("time.age")) {
    const text = duration(Math.max(0, Math.floor((now - Date.parse(time.dateTime)) / 1000)));
    if (time.textContent !== text) time.textContent = text;
  }
  const clock = main.querySelector(".asof time");
  if (clock) clock.textContent = `${new Date(now).toISOString().slice(11, 19)} UTC`;
}

/** What is asked for: the list that the boxes choose, and of it what has changed since it was sent. */
function live() {
  const version = tag.startsWith('W/"') ? `since=${tag.slice(3, -1)}` : "";
  const text = [query, version].filter(Boolean).join("&");
  return text ? `${main.dataset.live}?${text}` : main.dataset.live;
}

async function update() {
  const asked = query;
  const answer = await fetch(live(), { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
  if (answer.status === 401) {
    say("The server was restarted and has a new token.");
    return;
  }
  if (answer.status !== 304) {
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = document.createElement("main");
    fresh.innerHTML = await answer.text();
    // Another list is wanted by now.
    if (asked !== query) return;
    tag = answer.headers.get("ETag") || "";
    const clock = fresh.querySelector(".asof time");
    if (clock) offset = Date.parse(clock.dateTime) - Date.now();
    apply(fresh);
    if (lacks) {
      // A machine that has not changed was on another page before: everything of this one is asked for.
      tag = "";
      await update();
      return;
    }
    prepare();
  }
  age();
  since = new Date().toLocaleTimeString();
  say("");
}

/** Lists the machines that the boxes choose. Each choice has its place in the history, but not each letter of a text. */
function choose(typing) {
  const boxes = new URLSearchParams(new FormData(document.getElementById("filter")));
  for (const [key, value] of [...boxes]) {
    if (!value) boxes.delete(key);
  }
  [query, tag] = [boxes.toString(), ""];
  history[typing ? "replaceState" : "pushState"](null, "", query ? `?${query}` : location.pathname);
  update().catch(() => {});
}

/** What the form for several machines has beyond what works without a script. */
function prepare() {
  const all = document.getElementById("choose-all");
  const output = document.getElementById("chosen");
  if (!all || !output) return;
  all.hidden = false;
  const count = main.querySelectorAll("input[name=machine]:checked").length;
  const text = `${count} chosen`;
  if (output.textContent !== text) output.textContent = text;
}

async function follow() {
  const begun = performance.now();
  try {
    if (!document.hidden) await update();
  } catch {
    say(since ? `The server does not answer. Last update: ${since}.` : "The server does not answer.");
  }
  // A page of a thousand machines is requested less often, so that the browser is not busy with it all the time.
  setTimeout(follow, Math.max(EVERY, 5 * (performance.now() - begun)));
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) update().catch(() => {});
});
main.addEventListener("input", (event) => {
  if (event.target.closest("#filter")) choose(event.target.type === "search");
});
main.addEventListener("change", prepare);
main.addEventListener("click", (event) => {
  if (event.target.id !== "choose-all") return;
  for (const box of main.querySelectorAll("input[name=machine]")) box.checked = true;
  prepare();
});
main.addEventListener("submit", (event) => {
  if (event.target.id !== "filter") return;
  event.preventDefault();
  choose(false);
});
// The boxes are those of the page that the history leads back to.
addEventListener("popstate", () => {
  if (location.search.slice(1) !== query) location.reload();
});
if (main.dataset.live) {
  prepare();
  setTimeout(follow, EVERY);
}
