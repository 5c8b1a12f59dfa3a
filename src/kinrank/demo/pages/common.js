"use strict";
// What both demos need. Each defines search(text), which chips call.
const $ = (id) => document.getElementById(id);

// Data is always set as text, never as markup.
function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function chip(text, label) {
  const item = element("li", "");
  const button = element("button", "choice", label ?? text);
  button.type = "button";
  button.addEventListener("click", () => search(text));
  item.append(button);
  return item;
}

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// The first answer takes longer: what ranks is being compiled. Says so until the answer is there.
async function patiently(answer) {
  const slow = setTimeout(() => { $("note").textContent = "The first search prepares what ranks: some seconds, once…"; }, 1500);
  try {
    return await answer;
  } finally {
    clearTimeout(slow);
  }
}
