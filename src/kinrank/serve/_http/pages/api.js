"use strict";
const $ = (id) => document.getElementById(id);

// Data is always set as text, never as markup.
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Send a request with the key that was entered on the page.
function send(path, body) {
  const headers = {};
  if ($("key").value) headers["Authorization"] = "Bearer " + $("key").value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return fetch(path, {method: body === undefined ? "GET" : "POST", headers, body});
}

$("settings").addEventListener("submit", (event) => event.preventDefault());

// What a body consists of: the fields of its struct with their types.
function fields(document, schema) {
  const name = (schema.$ref || "").split("/").pop();
  const struct = document.components.schemas[name];
  if (!struct || !struct.properties) return undefined;
  const table = element("table"), required = struct.required || [];
  for (const [field, type] of Object.entries(struct.properties)) {
    const row = element("tr");
    row.append(element("td", "name", field + (required.includes(field) ? "" : " (optional)")), element("td", "", describe(type)));
    table.append(row);
  }
  return table;
}

function describe(type) {
  const kinds = (type.anyOf || [type]).map((each) => {
    if (each.$ref) return each.$ref.split("/").pop();
    if (each.type === "array") return "list of " + (each.items ? describe(each.items) : "anything");
    return each.type || "any";
  });
  const text = [...new Set(kinds)].join(" or ");
  return type.description ? text + ". " + type.description : text;
}

function details(title, content) {
  const folded = element("details");
  folded.append(element("summary", "", title), content);
  return folded;
}

function operation(document, path, method, about) {
  const card = element("section", "card operation");
  const heading = element("h2");
  heading.append(element("code", "", method.toUpperCase() + " " + path));
  card.append(heading, element("p", "", about.summary + ". " + (about.description || "")));
  const form = element("form"), output = element("pre");
  output.hidden = true;
  let input;
  if (about.requestBody) {
    const content = about.requestBody.content["application/json"];
    const table = fields(document, content.schema);
    if (table) card.append(details("Fields of the request", table));
    input = element("textarea");
    input.value = JSON.stringify(content.example, null, 1);
    input.rows = 6;
    input.spellcheck = false;
    input.setAttribute("aria-label", "Body of " + path);
    form.append(input);
  }
  const schema = about.responses["200"].content["application/json"].schema;
  const answer = fields(document, schema);
  if (answer) card.append(details("Fields of the response", answer));
  form.append(element("button", "", "Send"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.hidden = false;
    try {
      const response = await send(path, input ? input.value : undefined);
      const text = await response.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch { /* not JSON, as the metrics */ }
      output.textContent = response.status + "\n" + shown.slice(0, 20000);
    } catch (error) {
      output.textContent = String(error);
    }
  });
  card.append(form, output);
  return card;
}

fetch("/openapi.json").then((response) => response.json()).then((document) => {
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, about] of Object.entries(methods)) $("operations").append(operation(document, path, method, about));
  }
}).catch((error) => { $("note").textContent = String(error); });
