// --- rules of editors ---

const named = (id) => seen[id] || id;

// What a rule does, with the title of its document.
function told(rule) {
  const count = Math.abs(rule.places), deed = {
    pin: "Pin " + named(rule.document) + " to place " + rule.places,
    hide: "Hide " + named(rule.document),
    boost: "Move " + named(rule.document) + (rule.places > 0 ? " up " : " down ") + count + (count === 1 ? " place" : " places"),
    redirect: "Search “" + rule.document + "” instead",
  }[rule.action];
  return deed + " for " + (rule.also_similar ? "queries like " : "") + "“" + rule.query + "”";
}

// Which rules changed the list that is shown; the service names documents by their ids.
function acted(ranking) {
  const words = (ranking.rules || []).map((text) => text.replace(/'([^']*)' (to place|up|down|for)/, (_, id, rest) => "“" + named(id) + "” " + rest));
  if (ranking.explored) words.push("this list explores: its order is a draw from what people may choose");
  $("acted").textContent = words.length ? words.join("; ") + "." : "";
  $("rule-query").value = $("query").value || $("text").value;
  const chosen = $("rule-document").value;
  $("rule-document").replaceChildren(...ranking.ids.map((id) => {
    const option = element("option", "", named(id));
    option.value = id;
    return option;
  }));
  if (ranking.ids.includes(chosen)) $("rule-document").value = chosen;
}

async function loadRules() {
  const found = events ? await call("/v1/rules?effects=true").catch(() => undefined) : undefined;
  $("rules-card").hidden = !found; // no database, or a key that may not edit
  if (!found) return;
  $("rules").replaceChildren(...(found.rules.length ? found.rules.map((rule) => {
    const item = element("li"), button = element("button", "choice", "Undo");
    button.type = "button";
    button.addEventListener("click", () => remove(rule).catch(ruled));
    item.append(element("span", "what", told(rule)), button, element("span", "why", "by " + rule.author + ", until " + rule.expires.slice(0, 10) + (rule.note ? ": " + rule.note : "")),
      element("span", "why", rule.effect || "nothing counted yet"));
    return item;
  }) : [element("li", "key", "No rule holds.")]));
}

const ruled = (error) => { $("rule-note").textContent = error.message; };

async function remove(rule) {
  const response = await send("/v1/rules?rule=" + rule.rule, undefined, "DELETE");
  $("rule-note").textContent = response.ok ? "Undone. All replicas follow within 2 seconds." : (await response.json()).error.message;
  await loadRules();
}

function share(value) {
  return value === null ? "" : " (" + (100 * value).toFixed(1) + "% of what people looked at)";
}

async function preview() {
  const query = $("rule-query").value.trim(), also_similar = $("rule-similar").checked;
  const found = await call("/v1/rules/preview", {query, also_similar});
  $("rule-note").textContent = "For " + found.queries.length + " of " + found.known + " known queries" + share(found.share) + ".";
  $("touched").replaceChildren(...found.queries.slice(0, SHOWN).map((each) => element("li", "", each.query + share(each.share))));
}

async function addRule() {
  const action = $("rule-action").value, body = {
    query: $("rule-query").value.trim(), action, document: $(action === "redirect" ? "rule-instead" : "rule-document").value.trim(),
    also_similar: $("rule-similar").checked, days: Number($("rule-days").value), note: $("rule-why").value,
  };
  if (action === "pin" || action === "boost") body.places = Number($("rule-places").value);
  const added = await call("/v1/rules", body);
  $("rule-note").textContent = told(added) + ": added. All replicas follow within 2 seconds.";
  await loadRules();
}

function chooseAction() {
  const action = $("rule-action").value, instead = action === "redirect";
  $("rule-places").hidden = $("rule-places").disabled = action === "hide" || instead;
  $("rule-document").hidden = $("rule-document").disabled = instead;
  $("rule-instead").hidden = $("rule-instead").disabled = !instead;
}

// Offer the query that the one without results is a spelling of, and to search it from now on.
function suggest(query, kin) {
  if (!kin) return;
  const once = element("button", "choice", "Search “" + kin + "”"), always = element("button", "choice", "Always do that");
  once.addEventListener("click", () => { $("query").value = kin; $("form").requestSubmit(); });
  always.hidden = $("rules-card").hidden;
  always.addEventListener("click", () => call("/v1/rules", {query, action: "redirect", document: kin}).then((added) => {
    note(told(added) + ": added. All replicas follow within 2 seconds.");
    return loadRules();
  }).catch(failed));
  $("note").append(" ", once, " ", always);
}

$("rule-action").addEventListener("change", chooseAction);
chooseAction();
$("rule-preview").addEventListener("click", () => preview().catch(ruled));
$("rule-form").addEventListener("submit", (event) => {
  event.preventDefault();
  addRule().catch(ruled);
});
