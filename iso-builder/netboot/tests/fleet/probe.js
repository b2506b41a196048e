// Checks the layout, structure and contrast of a page, and writes what it finds into the page.
"use strict";

const findings = [];
const name = (element) => `<${element.localName} ${element.id ? "#" + element.id : "." + element.className}> ${element.textContent.trim().slice(0, 40)}`;
const find = (text, element) => findings.push(element ? `${text}: ${name(element)}` : text);
const all = (selector) => [...document.querySelectorAll(selector)];

function layout() {
  const width = document.documentElement.clientWidth;
  for (const element of all("body *")) {
    const box = element.getBoundingClientRect();
    if (box.width > 1 && box.right > width + 0.5 && !element.closest(".skip, pre, svg")) find(`reaches ${Math.round(box.right)} of ${width} pixels`, element);
  }
  for (const element of all("button, summary, .log")) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && (box.width < 24 || box.height < 24)) find("is smaller than a fingertip", element);
  }
}

function structure() {
  if (document.documentElement.lang !== "en") find("the page has no language");
  if (!document.title.trim()) find("the page has no title");
  for (const landmark of ["header", "main", "h1"]) {
    if (all(landmark).length !== 1) find(`there are ${all(landmark).length} elements ${landmark}`);
  }
  let level = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6")) {
    const next = Number(heading.localName[1]);
    if (next > level + 1) find(`a heading of level ${next} follows one of level ${level}`, heading);
    level = next;
  }
  const ids = all("[id]").map((element) => element.id);
  for (const id of ids.filter((id, index) => ids.indexOf(id) !== index)) find(`two elements have the id ${id}`);
  for (const element of all("[aria-labelledby]")) {
    if (!document.getElementById(element.getAttribute("aria-labelledby"))) find("is labelled by nothing", element);
  }
  for (const link of all('a[href^="#"], use')) {
    if (!document.querySelector(link.getAttribute("href"))) find("leads nowhere", link);
  }
  for (const element of all("a, button, summary, th, dt")) {
    if (!element.textContent.trim()) find("has no name", element);
  }
  for (const element of all("progress")) {
    if (!element.getAttribute("aria-label")) find("has no label", element);
  }
  for (const element of all("th")) {
    if (!element.scope) find("has no scope", element);
  }
}

const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);

function luminance([r, g, b]) {
  const linear = [r, g, b].map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function ground(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}

// WCAG 2.2, 1.4.3: 4.5 to 1, and 3 to 1 for large text.
function contrast() {
  let seen = 0;
  for (const element of all("body *")) {
    const text = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.nodeValue.trim());
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    if (!text || !size || element.closest(".unseen, script, noscript, progress") || !element.getClientRects().length) continue;
    const [one, other] = [luminance(numbers(style.color)), luminance(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) find(`has a contrast of ${ratio.toFixed(2)}`, element);
    seen += 1;
  }
  return seen;
}

if (window === top && location.hash === "#phone") {
  // A window of Chromium is not as narrow as a phone; a frame is.
  const frame = document.createElement("iframe");
  frame.src = location.pathname;
  frame.width = "320";
  frame.frameBorder = "0";
  frame.height = "640";
  document.body.append(frame);
} else {
  layout();
  structure();
  const seen = contrast();
  const dark = luminance(numbers(getComputedStyle(document.body).backgroundColor)) < 0.5;
  const result = top.document.createElement("pre");
  result.id = "findings";
  result.textContent = JSON.stringify({ findings, seen, dark, width: document.documentElement.clientWidth });
  top.document.body.append(result);
}
