const SHOWN = 10, MAX_WEIGHTS = 12, POLL = 5000, COUNTED = 2500;
let features = [], events = false;
const seen = {}; // titles of all documents that were shown, by id

async function call(path, body) {
  const response = await send(path, body && JSON.stringify(body));
  const data = await response.json();
  if (!response.ok) throw new Error(data.error ? data.error.message : "The service returned status " + response.status + ".");
  return data;
}

// --- before and after ---

function highlight(id, on) {
  for (const item of document.querySelectorAll("li[data-id]")) {
    if (item.dataset.id === id) item.classList.toggle("lit", on);
  }
}

// The features that lift a document that rose, or lower one that fell.
function reason(effects, step) {
  if (!effects) return "";
  const named = Object.entries(effects).filter(([, effect]) => (step > 0 ? effect > 0 : effect < 0));
  if (named.length === 0) return step > 0 ? "others fall below it" : "others rise above it";
  return named.map(([name, effect]) => name + " " + number(effect)).join(", ");
}

// The id of this browser, which is one vote.
function client() {
  if (!localStorage.getItem("kinrank-client")) localStorage.setItem("kinrank-client", crypto.randomUUID());
  return localStorage.getItem("kinrank-client");
}

// Report the list that was shown and the document that was chosen, and search again once that counts.
async function choose(found, query, id) {
  const about = {query_id: found.query_id, client_id: client()};
  await call("/v1/events", {
    queries: [{...about, user_query: query, query_response_hit_ids: found.ids}],
    events: [{...about, action_name: "click", event_attributes: {object: {object_id: id}}}],
  });
  note("You chose " + ((found.titles || {})[id] || id) + ". Choices of several people change the order: searching again…");
  setTimeout(() => search(query).catch(failed), COUNTED);
}

function list(target, ids, others, titles, reasons, after, chosen = {}, choosing = undefined) {
  target.replaceChildren(...ids.map((id, place) => {
    const item = element("li"), what = element("span", "what", titles[id] || id), other = others.indexOf(id);
    item.dataset.id = id;
    what.title = titles[id] ? titles[id] + " (" + id + ")" : id;
    item.append(element("span", "place", place + 1), what);
    // How far the document moves from before to after. A search returns the first documents only: others are below.
    const step = other < 0 ? (after ? Infinity : -Infinity) : after ? other - place : place - other;
    const told = after || other < 0 || other >= SHOWN;
    const text = step === Infinity ? "from below" : step === -Infinity ? "below" : step > 0 ? "▲ " + step : step < 0 ? "▼ " + -step : "=";
    item.append(element("span", "move" + (step > 0 ? " up" : step < 0 ? " down" : ""), told ? text : ""));
    const why = after && chosen[id] ? chosen[id] : step && told ? reason(reasons[id], step) : "";
    if (choosing) {
      item.classList.add("hit");
      item.title = "Choose it";
      item.addEventListener("click", () => choosing(id).catch(failed));
    }
    if (why) item.append(element("span", "why", why));
    item.addEventListener("mouseenter", () => highlight(id, true));
    item.addEventListener("mouseleave", () => highlight(id, false));
    return item;
  }));
}

function show(before, ranking, why, titles, title, choosing) {
  const after = ranking.ids.slice(0, SHOWN), shown = before.slice(0, SHOWN);
  const reasons = (why && why.reasons) || {};
  Object.assign(seen, titles);
  acted(ranking);
  list($("before"), shown, ranking.ids, titles, reasons, false);
  list($("after"), after, before, titles, reasons, true, {...(why && why.judged), ...(why && why.choices)}, choosing);
  $("before-title").textContent = title;
  $("before-count").textContent = "top " + shown.length;
  $("after-count").textContent = ranking.fallback ? "same order" : "model " + ranking.model;
  $("why").hidden = !why;
  if (why) neighbors(why);
  if (why) weights(why);
  $("shares").textContent = why && why.shares ? "Contributions to the order: " + Object.entries(why.shares)
    .filter(([, share]) => share >= 0.005).map(([part, share]) => part + " " + Math.round(100 * share) + "%").join(", ") + "." : "";
  $("result").hidden = false;
}

function neighbors(why) {
  $("near-count").textContent = why.n_neighbors + " in total, nearest first";
  $("neighbors").replaceChildren(...why.neighbors.map((near, place) => {
    const item = element("li");
    const what = element("span", "what", near.text || near.qid);
    what.title = near.text || near.qid;
    item.append(element("span", "place", place + 1), what, element("span", "move", near.distance.toFixed(2)));
    return item;
  }));
}

function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return (value < 0 ? "−" : "+") + (size < 0.001 || size >= 10000 ? size.toExponential(1) : size.toPrecision(2));
}

// The name of a feature in a cell, which may break after an underscore.
function featureCell(name) {
  const cell = element("td", "name");
  cell.append(...name.split(/(?<=_)/).flatMap((part) => [part, element("wbr")]));
  return cell;
}

// One scale for all features: weight times spread among the candidates.
function weights(why) {
  if (!why.local_weights) return $("weights").replaceChildren();
  const scaled = (all, name) => all[name] * (why.spread ? why.spread[name] : 1);
  const rows = Object.keys(why.local_weights).map((name) => [name, scaled(why.local_weights, name), scaled(why.global_weights, name)]);
  const size = ([, own, global]) => Math.max(Math.abs(own), Math.abs(global));
  rows.sort((a, b) => size(b) - size(a));
  const scale = (rows.length && size(rows[0])) || 1;
  $("weights").replaceChildren(...rows.slice(0, MAX_WEIGHTS).map(([name, own, global]) => {
    const row = element("tr"), cell = element("td"), bar = element("div", "bar"), fill = element("i"), mark = element("b");
    const end = 50 + 48 * own / scale;
    fill.style.left = Math.min(50, end) + "%";
    fill.style.width = Math.abs(end - 50) + "%";
    mark.style.left = "calc(" + (50 + 48 * global / scale) + "% - 1px)";
    bar.append(fill, mark);
    cell.append(bar);
    row.append(featureCell(name), cell, element("td", "number", number(own)));
    row.title = name + ": weight " + why.local_weights[name] + " for this query, " + why.global_weights[name] + " in the global model";
    return row;
  }));
}

const REASONS = {
  "late": "Ranking took too long", "no-model": "No model is loaded", "novel-query": "No similar query was judged",
  "not-finite": "A feature value is missing", "unknown-feature": "The model does not have these features",
  "no-vector": "A feature needs a vector, and the query has none", "encoder-error": "The text could not be encoded",
  "engine-down": "The engine could not compute features", "model-error": "The model failed",
  "unfaithful-weights": "No linear weights come close to the ranking",
};

function fallback(found) {
  note((REASONS[found.fallback] || found.fallback) + ": the order did not change. " + (found.detail || ""), true);
}

// --- search, pasted candidates, stored examples ---

async function search(query) {
  note("Searching…");
  const start = performance.now();
  const found = await call("/v1/search", {query, size: SHOWN, explain: true});
  const took = Math.round(performance.now() - start);
  if (found.ids.length === 0) {
    $("result").hidden = true;
    note("The engine found nothing for this query.");
    return suggest(query, found.kin);
  }
  const why = found.explanation;
  const choosing = events && found.query_id ? (id) => choose(found, query, id) : undefined;
  show(found.engine_ids, found, why, found.titles || {}, "Before: the engine's order", choosing);
  if (found.fallback) fallback(found);
  else if (found.kin) {
    note("The engine found nothing for this query. These are the documents of “" + found.kin + "”.");
    suggest(query, found.kin);
  } else note("Ranked in " + took + " ms, including the engine." + (why && why.unusual > 0.99 ? " No judged query is close to this one." : ""));
}

async function rank(body, title) {
  note("Ranking…");
  const start = performance.now();
  const found = await call("/v1/rank", body);
  const took = Math.round(performance.now() - start);
  const explained = await call("/v1/explain", body).catch(() => undefined); // has the titles, also of an order that did not change
  show(body.ids, found, found.fallback ? undefined : explained, (explained && explained.titles) || {}, title);
  if (found.fallback) fallback(found);
  else note("Ranked " + body.ids.length + " candidates in " + took + " ms.");
  return found;
}

// The first column is the id; a quoted cell may contain the separator.
function parseTable(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  if (lines.length < 2) throw new Error("Paste a header and at least one candidate.");
  const separator = lines[0].includes("\t") ? "\t" : ",";
  const cells = (line) => (separator === "," ? line.match(/("([^"]|"")*"|[^,]*)(,|$)/g).slice(0, -1).concat(line.endsWith(",") ? [""] : [])
    .map((cell) => cell.replace(/,$/, "").trim().replace(/^"(.*)"$/s, "$1").replace(/""/g, '"')) : line.split("\t").map((cell) => cell.trim()));
  const [header, ...rows] = lines.map(cells);
  const values = rows.map((row, place) => header.slice(1).map((name, column) => {
    const cell = row[column + 1];
    if (cell === undefined || cell === "") return null;
    if (!Number.isFinite(Number(cell))) throw new Error("Row " + (place + 1) + ": " + name + " is not a number: " + cell);
    return Number(cell);
  }));
  return {ids: rows.map((row) => row[0]), features: values, feature_names: header.slice(1)};
}

async function replay(example) {
  const body = {ids: example.ids, features: example.features, feature_names: features, columns: example.columns};
  if (example.text) body.text = example.text;
  if (example.vector) body.vector = example.vector;
  const found = await rank(body, "Before: as stored");
  if (found.fallback) return;
  const scores = Object.fromEntries(found.ids.map((id, place) => [id, found.scores[place]]));
  const spread = Math.max(...example.scores) - Math.min(...example.scores) || 1;
  const same = example.ids.every((id, place) => Math.abs(scores[id] - example.scores[place]) <= 1e-3 * spread);
  note($("note").textContent + (same ? " The scores are those that the model had when it was written." : " The scores differ from those when the model was written, as after new judgments."), !same);
}

const failed = (error) => { $("result").hidden = true; note(error.message, true); };

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value.trim();
  if (!query) return;
  history.replaceState(null, "", "#" + encodeURIComponent(query));
  search(query).catch(failed);
});

$("paste").addEventListener("submit", (event) => {
  event.preventDefault();
  try {
    const body = parseTable($("candidates").value);
    if ($("text").value.trim()) body.text = $("text").value.trim();
    rank(body, "Before: as pasted").then(() => $("note").scrollIntoView({block: "nearest"})).catch(failed);
  } catch (error) {
    failed(error);
  }
});
