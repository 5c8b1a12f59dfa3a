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
