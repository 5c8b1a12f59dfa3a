"use strict";
let asked = "";
const liked = new Set();

async function search(text) {
  $("query").value = text;
  try {
    show(await patiently(ask(`/search?q=${encodeURIComponent(text)}`)));
  } catch (error) {
    $("note").textContent = error.message;
  }
}

function show(found) {
  asked = found.query;
  $("answers").hidden = !found.hits.length;
  $("forget").hidden = !found.questions;
  $("known").textContent = `${found.questions} question${found.questions === 1 ? "" : "s"} remembered`;
  $("note").textContent = found.hits.length ? "" : "No answer has these words.";
  $("hits").replaceChildren(...found.hits.map((hit, place) => row(hit, place)));
}

function row(hit, place) {
  const item = element("li", "hit answer");
  const direction = hit.moved > 0 ? "up" : hit.moved < 0 ? "down" : "";
  const move = hit.moved ? `${hit.moved > 0 ? "▲" : "▼"} ${Math.abs(hit.moved)}` : "";
  const thumb = element("button", "choice", "Helps");
  thumb.type = "button";
  thumb.setAttribute("aria-label", `This answers it: ${hit.id}`);
  thumb.setAttribute("aria-pressed", String(liked.has(`${asked}\n${hit.id}`)));
  thumb.addEventListener("click", () => like(hit));
  item.append(element("span", "place", String(place + 1)), element("span", "title", hit.id), thumb);
  item.append(element("span", "people", hit.text));
  if (hit.why) item.append(element("span", "reason", hit.why.replaceAll("*", "")));
  if (move) item.append(element("span", `move ${direction}`, move));
  return item;
}

async function like(hit) {
  liked.add(`${asked}\n${hit.id}`);
  show(await ask("/choose", { query: asked, document: hit.id }));
  $("note").textContent = "Thank you. Now ask in other words.";
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  search($("query").value.trim());
});
$("forget").addEventListener("click", async () => {
  await ask("/forget", {});
  liked.clear();
  search(asked);
});
ask("/examples").then((found) => {
  $("examples").replaceChildren(...found.examples.map((text) => chip(text)));
  search(found.examples[0]);
});
