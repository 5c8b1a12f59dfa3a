"use strict";
// Texts from the data are only set as text, never as markup.

const at = (id) => document.getElementById(id);

function make(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

// Light and dark.
{
  const button = at("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { button.textContent = current() === "dark" ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = current() === "dark" ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  label();
  button.hidden = false;
}

// Open all details before printing.
{
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of opened) each.open = false; });
}

// Explain terms on hover, focus and tap. Without a script the browser shows the title of each.
{
  const shown = make("div", undefined, "explanation");
  shown.id = "explanation";
  shown.setAttribute("role", "tooltip");
  shown.hidden = true;
  document.body.append(shown);
  const hide = () => { shown.hidden = true; };
  for (const term of document.querySelectorAll("abbr[title]")) {
    const text = term.title;
    term.removeAttribute("title");
    term.setAttribute("aria-describedby", "explanation");
    const show = () => {
      shown.textContent = text;
      shown.hidden = false;
      const box = term.getBoundingClientRect(), width = document.documentElement.clientWidth;
      shown.style.left = Math.max(8, Math.min(box.left, width - shown.offsetWidth - 8)) + "px";
      const above = box.top - shown.offsetHeight - 6;
      shown.style.top = (above > 4 ? above : box.bottom + 6) + "px";
    };
    for (const event of ["pointerenter", "focus", "click"]) term.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) term.addEventListener(event, hide);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });
}

// A link to a folded section opens it.
addEventListener("hashchange", unfold);
unfold();
function unfold() {
  const target = location.hash.length > 1 && at(location.hash.slice(1));
  const folded = target && target.querySelector(":scope > details");
  if (folded) folded.open = true;
}

if (at("data")) drawMap(JSON.parse(at("data").textContent));

function drawMap(data) {
  const map = at("query-map"), tip = at("tip"), card = at("card"), here = map.querySelector(".here");
  const side = map.viewBox.baseVal.width;
  const signed = (value, digits) => (value > 0 ? "+" : value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(digits);
  const shadeClass = (shade) => (shade ? (shade > 0 ? "gain" : "loss") + Math.abs(shade) : "none");
  // Importance and direction.
  const percent = (perMille) => Math.abs(perMille / 10).toFixed(0) + "%" + (perMille > 0 ? " \u2191" : perMille < 0 ? " \u2193" : "");
  let selected = -1;

  // Color by change in the measure, by kind, or by the difference of a feature's share from the global model.
  const select = at("color");
  const option = (value, text) => { const made = make("option", text); made.value = value; select.append(made); };
  if (data.kinds) option("kind", "kind of query");
  data.features.forEach((name, feature) => option(feature, "weight of " + name));

  function classes(color) {
    if (color === "gain") return data.shade.map(shadeClass);
    if (color === "kind") return data.kind.map((kind) => "k" + kind);
    const change = data.change.map((row) => row[Number(color)]);
    const sizes = change.map(Math.abs).sort((a, b) => a - b);
    const reach = sizes[Math.floor(0.95 * (sizes.length - 1))] || 1;
    return change.map((value) => shadeClass(Math.sign(value) * Math.min(3, Math.round((3 * Math.abs(value)) / reach))));
  }

  function paint(color) {
    for (const path of map.querySelectorAll(".dots")) path.remove();
    const groups = new Map();
    classes(color).forEach((name, query) => {
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(query);
    });
    const order = [...groups.keys()].sort((a, b) => (a === "none" ? 0 : a.slice(-1)) - (b === "none" ? 0 : b.slice(-1)));
    const first = map.firstChild;
    for (const name of order) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", "dots " + name);
      path.setAttribute("d", groups.get(name).map((query) => "M" + data.at[query].join(" ") + "h0").join(""));
      map.insertBefore(path, first);
    }
    describeColors(color);
  }

  function describeColors(color) {
    const legend = at("legend");
    const keys = color === "gain" ? [["loss3", "loses most"], ["loss1", ""], ["none", "unchanged"], ["gain1", ""], ["gain3", "gains most"]]
      : color === "kind" ? data.kinds.map((letter, kind) => ["k" + kind, letter])
      : [["loss3", "less than globally"], ["loss1", ""], ["none", "as globally"], ["gain1", ""], ["gain3", "more"]];
    legend.replaceChildren(...keys.map(([name, text]) => make("span", text, "key " + name)));
  }

  select.addEventListener("change", () => paint(select.value));

  // Show one query: a tooltip next to it, and its details below the map.
  function change(query) {
    const before = data.before[query], after = data.after[query];
    return before === null || after === null ? null : after - before;
  }

  function show(query) {
    selected = query;
    const [x, y] = data.at[query];
    here.setAttribute("cx", x);
    here.setAttribute("cy", y);
    const scale = map.clientWidth / side;
    tip.textContent = data.names[query] + (change(query) === null ? "" : "  " + signed(change(query), 2));
    tip.hidden = false;
    tip.style.left = Math.min(Math.max(x * scale, tip.offsetWidth / 2), map.clientWidth - tip.offsetWidth / 2) + "px";
    tip.style.top = Math.max(y * scale, tip.offsetHeight + 14) + "px";
    showDetails(query);
  }

  function showDetails(query) {
    const parts = [make("h3")];
    parts[0].append(make("bdi", data.names[query]));
    if (change(query) !== null) {
      parts.push(make("p", `${data.measure} ${data.before[query].toFixed(3)} \u2192 ${data.after[query].toFixed(3)} (${signed(change(query), 3)})`));
    }
    if (data.nearest[query].length) {
      const names = make("p", "Nearest judged queries: ");
      data.nearest[query].forEach((name, i) => names.append(i ? " \u00b7 " : "", make("bdi", name)));
      parts.push(names);
    }
    if (data.change) {
      const order = data.features.map((_, feature) => feature)
        .sort((a, b) => Math.abs(data.change[query][b]) - Math.abs(data.change[query][a])).slice(0, 3);
      const shares = order.map((feature) => `${data.features[feature]} ${percent(data.overall[feature] + data.change[query][feature])} (globally ${percent(data.overall[feature])})`);
      parts.push(make("p", `${data.kinds[data.kind[query]]}. Decided by ${shares.join(", ")}.`));
    }
    card.replaceChildren(...parts);
    card.hidden = false;
  }

  function nearest(x, y, allowed) {
    let best = -1, least = Infinity;
    data.at.forEach(([a, b], query) => {
      const distance = (a - x) ** 2 + (b - y) ** 2;
      if (distance < least && (!allowed || allowed(a - x, b - y))) { best = query; least = distance; }
    });
    return [best, Math.sqrt(least)];
  }

  function selectAt(event) {
    const box = map.getBoundingClientRect();
    const scale = side / box.width;
    const [query, distance] = nearest((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    if (distance < 24 * Math.max(1, scale)) show(query);
    else tip.hidden = true;
  }

  map.addEventListener("pointermove", selectAt);
  map.addEventListener("pointerdown", selectAt);
  map.addEventListener("pointerleave", () => { tip.hidden = true; });

  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  map.addEventListener("keydown", (event) => {
    const direction = directions[event.key];
    if (!direction) return;
    event.preventDefault();
    const [x, y] = selected < 0 ? [side / 2, side / 2] : data.at[selected];
    // Within 45 degrees of the direction, so that every query can be reached.
    const inDirection = (dx, dy) => { const along = dx * direction[0] + dy * direction[1]; return along > 0 && along >= Math.abs(dx * direction[1] + dy * direction[0]); };
    const [query] = selected < 0 ? nearest(x, y) : nearest(x, y, inDirection);
    if (query >= 0) show(query);
  });

  // Search by name.
  const find = at("find"), found = at("found");
  const folded = data.names.map((name) => name.toLowerCase());
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    const hits = [];
    for (let query = 0; wanted && query < folded.length && hits.length < 8; query++) {
      if (folded[query].includes(wanted)) hits.push(query);
    }
    found.replaceChildren(...hits.map((query) => {
      const item = make("li"), button = make("button", data.names[query]);
      button.type = "button";
      button.addEventListener("click", () => show(query));
      item.append(button);
      return item;
    }));
  });

  at("controls").hidden = false;
  at("map-help").hidden = false;
}
