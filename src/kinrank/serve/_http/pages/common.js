"use strict";
const $ = (id) => document.getElementById(id);

// Data is always set as text, never as markup.
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function note(text, warn = false) {
  $("note").textContent = text;
  $("note").className = warn ? "warn" : "";
}

// Send a request with the key and the model that were chosen on the page.
function send(path, body, method = body === undefined ? "GET" : "POST") {
  const headers = {};
  if ($("key").value) headers["Authorization"] = "Bearer " + $("key").value;
  if ($("model") && $("model").value) headers["X-Kinrank-Model"] = $("model").value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return fetch(path, {method, headers, body});
}

$("settings").addEventListener("submit", (event) => event.preventDefault());
