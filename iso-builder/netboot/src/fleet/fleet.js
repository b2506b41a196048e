// Keeps a page up to date: reloads the content of <main> and replaces only what has changed, so that focus, selected text
// and opened details stay. Without this script the page reloads itself.
"use strict";

const EVERY = 2000;
const main = document.getElementById("main");
const link = document.getElementById("link");
let tag = "";
let since = "";

/** Makes `old` like `fresh`, keeping every node of the same kind and id. */
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id || "") !== (fresh.id || "")) {
    old.replaceWith(fresh);
    return;
  }
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

/** Children with an id are found again wherever they are; others by their place. */
function morphChildren(old, fresh) {
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id ? known.get(child.id) : place && !place.id ? place : null;
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

async function update() {
  const answer = await fetch(main.dataset.live, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
  if (answer.status === 401) {
    say("The server was restarted and has a new token.");
    return;
  }
  if (answer.status !== 304) {
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = document.createElement("main");
    fresh.innerHTML = await answer.text();
    tag = answer.headers.get("ETag") || "";
    morphChildren(main, fresh);
  }
  since = new Date().toLocaleTimeString();
  say("");
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
setTimeout(follow, EVERY);
