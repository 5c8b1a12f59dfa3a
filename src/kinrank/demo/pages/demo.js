"use strict";
const LISTS = ["engine", "lightgbm", "kinrank"];
let searched = "";
let examples = { helps: [], hurts: [] };
const chosen = new Set();

async function search(text) {
  $("query").value = text;
  $("note").textContent = "Searching…";
  try {
    show(await patiently(ask(`/search?q=${encodeURIComponent(text)}`)));
  } catch (error) {
    $("note").textContent = error.message;
  }
}

function show(found) {
  const before = found.query === searched ? positions() : new Map();
  searched = found.query;
  const any = Object.keys(found.lists).length > 0;
  $("lists").hidden = $("tabs").hidden = $("kin-card").hidden = !any;
  $("note").textContent = any
    ? `Ranked in ${Math.ceil(found.milliseconds)} ms.`
    : "No movie matches. Try a title, an actor or a plot.";
  $("kin").replaceChildren(...found.kin.map((text) => chip(text)));
  $("kin").hidden = !found.kin.length;
  $("no-kin").hidden = found.kin.length > 0;
  $("dots").hidden = !found.judged;
  for (const name of LISTS) $(name).replaceChildren(...(found.lists[name] ?? []).map((hit, place) => row(hit, place)));
  slide(before);
}

function positions() {
  return new Map([...document.querySelectorAll("#kinrank .hit")].map((hit) => [hit.dataset.id, hit.getBoundingClientRect().top]));
}

// Rows start where they were and move to where they are now.
function slide(before) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const hit of document.querySelectorAll("#kinrank .hit")) {
    const from = before.get(hit.dataset.id);
    const by = from === undefined ? 0 : from - hit.getBoundingClientRect().top;
    if (by) hit.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: 600, easing: "ease-in-out" });
  }
}

function row(hit, place) {
  const item = element("li", "");
  const button = element("button", "hit");
  button.type = "button";
  button.dataset.id = hit.id;
  button.title = hit.about;
  if (chosen.has(`${searched}\n${hit.id}`)) button.classList.add("chosen");
  const title = element("span", "title", `${hit.title} `);
  title.append(element("small", "", String(hit.year)));
  if (hit.right) {
    const dot = element("span", "dot");
    dot.setAttribute("role", "img");
    dot.setAttribute("aria-label", "judged right");
    title.append(" ", dot);
  }
  const direction = hit.moved > 0 ? "up" : hit.moved < 0 ? "down" : "";
  const move = hit.moved ? `${hit.moved > 0 ? "▲" : "▼"} ${Math.abs(hit.moved)}` : "";
  button.append(element("span", "place", String(place + 1)), title, element("span", `move ${direction}`, move));
  button.append(element("span", "people", hit.people));
  if (hit.why) button.append(element("span", "reason", hit.why.replaceAll("*", "")));
  button.addEventListener("click", () => choose(hit));
  button.addEventListener("mouseenter", () => light(hit.id));
  button.addEventListener("mouseleave", () => light(null));
  item.append(button);
  return item;
}

function light(id) {
  for (const hit of document.querySelectorAll(".hit")) hit.classList.toggle("lit", hit.dataset.id === id);
}

async function choose(hit) {
  chosen.add(`${searched}\n${hit.id}`);
  $("forget").hidden = false;
  show(await ask("/choose", { query: searched, document: hit.id }));
  $("note").textContent = `You chose ${hit.title}. Now ask for it in other words.`;
}

function listExamples(kind) {
  for (const button of document.querySelectorAll("[data-kind]")) {
    button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
  }
  $("examples").replaceChildren(...examples[kind].map((text) => chip(text)));
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  search($("query").value.trim());
});
for (const button of document.querySelectorAll("[data-kind]")) {
  button.addEventListener("click", () => listExamples(button.dataset.kind));
}
for (const tab of document.querySelectorAll("[data-list]")) {
  tab.addEventListener("click", () => {
    $("lists").dataset.shown = tab.dataset.list;
    for (const each of document.querySelectorAll("[data-list]")) each.setAttribute("aria-pressed", String(each === tab));
  });
}
$("forget").addEventListener("click", async () => {
  await ask("/forget", {});
  chosen.clear();
  $("forget").hidden = true;
  if (searched) search(searched);
});
ask("/examples").then((found) => {
  examples = found;
  listExamples("helps");
  search(examples.helps[0]);
});
