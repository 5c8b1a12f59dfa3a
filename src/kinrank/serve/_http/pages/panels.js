// --- model card, stored examples, metrics ---

function rows(target, entries) {
  target.replaceChildren(...entries.filter(([, value]) => value !== undefined && value !== null).flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
}

function modelCard(name, status) {
  const loaded = status.loaded;
  $("card-name").textContent = name;
  const yes = (value) => (value ? "yes" : "no");
  rows($("card"), loaded ? [
    ["Ranker", loaded.ranker], ["Version", loaded.version],
    ["Judged queries", loaded.judged_queries && loaded.judged_queries.toLocaleString("en")],
    ["Judgments learned since", loaded.judgments_learned.toLocaleString("en")],
    ["Not yet seen by its trees", loaded.unseen_judgments ? loaded.unseen_judgments.toLocaleString("en") : undefined],
    ["Fit recommended", yes(loaded.fit_recommended)],
    ["Tested on stored examples", yes(loaded.self_tested)],
    ["Remarks of training", loaded.remarks.join("; ") || undefined],
    ["Features", String(loaded.feature_names.length)], ["Refused", status.refused],
  ] : [["State", "not loaded"], ["Refused", status.refused]]);
  $("features").hidden = !loaded;
  if (!loaded) return;
  $("about").textContent = "This model: " + (loaded.remarks.find((remark) => remark.startsWith("what ranks")) || loaded.remarks[0] || "ranker " + loaded.ranker) + ".";
  $("features").querySelector("p").textContent = loaded.feature_names.join(", ");
  $("candidates").placeholder = ["id", ...loaded.feature_names].join(",") + "\nfirst,…\nsecond,…";
}

// Show the first stored query, so that the page is never empty.
async function showFirst() {
  const first = $("examples").querySelector("button");
  if (first && $("result").hidden) first.click();
}

async function loadExamples() {
  const found = await call("/v1/examples");
  features = found.feature_names;
  $("examples-note").hidden = found.examples.length === 0;
  $("examples").replaceChildren(...(found.examples.length ? found.examples.map((example) => {
    const item = element("li"), button = element("button", "choice", example.text || "query " + example.qid);
    button.type = "button";
    button.addEventListener("click", () => {
      const lines = example.ids.map((id, row) => [id, ...example.features[row].map((value) => (value === null ? "" : value))].join("\t"));
      $("candidates").value = [["id", ...features].join("\t"), ...lines].join("\n");
      $("text").value = example.text || "";
      replay(example).catch(failed);
    });
    item.append(button);
    return item;
  }) : [element("li", "key", "The model has none: kinrank train stores some, and so does save(folder, examples=...).")]));
}

async function loadModels() {
  try {
    const status = await call("/v1/model"), names = Object.keys(status.models);
    const chosen = $("model").value || names.find((name) => status.models[name].default) || names[0];
    $("model").replaceChildren(...names.map((name) => element("option", "", name)));
    $("model").value = chosen;
    $("model-label").hidden = names.length < 2;
    $("form").hidden = !status.engine;
    events = status.events;
    loadRules();
    modelCard(chosen, status.models[chosen]);
    await loadExamples();
    $("no-engine").hidden = status.engine;
    if (!$("note").className) note("");
  } catch (error) {
    note(error.message, true);
  }
}

// Read the samples of the Prometheus format: name{labels} value.
function samples(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const parts = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (parts) found.push({name: parts[1], labels: Object.fromEntries([...(parts[2] || "").matchAll(/(\w+)="([^"]*)"/g)].map((each) => [each[1], each[2]])), value: Number(parts[3])});
  }
  return found;
}

// The bucket that contains the quantile tells its upper bound.
function quantile(buckets, share) {
  const total = Math.max(0, ...buckets.map(([, count]) => count));
  const bound = buckets.find(([, count]) => total && count >= share * total);
  return !bound ? "none yet" : bound[0] === Infinity ? "over 2.5 s" : "at most " + bound[0] * 1000 + " ms";
}

function metrics(text) {
  const all = samples(text), ranks = ["/v1/rank", "/v1/search", "/v1/weights"];
  const sum = (name, keep = () => true) => all.filter((each) => each.name === name && keep(each.labels)).reduce((total, each) => total + each.value, 0);
  const ours = (labels) => ranks.includes(labels.endpoint);
  const byBound = new Map();
  for (const {name, labels, value} of all) {
    if (name !== "kinrank_request_seconds_bucket" || !ours(labels)) continue;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    byBound.set(bound, (byBound.get(bound) || 0) + value);
  }
  const buckets = [...byBound].sort((a, b) => a[0] - b[0]);
  const requests = sum("kinrank_requests_total", ours), fallbacks = sum("kinrank_fallbacks_total");
  const started = sum("process_start_time_seconds");
  rows($("metrics"), [
    ["Requests that rank", requests.toLocaleString("en")],
    ["Median time", quantile(buckets, 0.5)], ["99th percentile", quantile(buckets, 0.99)],
    ["In the given order (fallbacks)", fallbacks.toLocaleString("en") + (requests ? " (" + (100 * fallbacks / requests).toFixed(1) + "%)" : "")],
    ["Rejected because of load", sum("kinrank_shed_total").toLocaleString("en")],
    ["Failures", (sum("kinrank_errors_total") + sum("kinrank_requests_total", (labels) => ours(labels) && labels.status.startsWith("5"))).toLocaleString("en")],
    ["Running", started ? Math.max(0, Math.round((Date.now() / 1000 - started) / 60)) + " min" : undefined],
  ]);
}

async function poll() {
  if (document.hidden) return;
  const response = await send("/metrics").catch(() => undefined);
  if (response && response.ok) metrics(await response.text());
}

$("key").addEventListener("change", () => { note(""); loadModels(); poll(); });
$("model").addEventListener("change", loadModels);
poll();
setInterval(poll, POLL);
loadModels().then(() => {
  if (!$("form").hidden && location.hash.length > 1) {
    $("query").value = decodeURIComponent(location.hash.slice(1));
    $("form").requestSubmit();
  } else showFirst();
});
