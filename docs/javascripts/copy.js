// Copy what is to be typed: commands and statements, without prompts and without what they print.
function typed(text) {
  const lines = text.split("\n");
  const python = lines.some((line) => line.startsWith(">>> "));
  if (!python && !lines.some((line) => line.startsWith("$ "))) return text;
  const kept = [];
  let continued = false;
  for (const line of lines) {
    if (python && /^(>>>|\.\.\.)( |$)/.test(line)) kept.push(line.slice(4));
    else if (!python && line.startsWith("$ ")) kept.push(line.slice(2));
    else if (continued) kept.push(line);
    else continue;
    continued = !python && line.endsWith("\\");
  }
  return kept.join("\n");
}

// In the capture phase, before the theme copies: it prefers this attribute to the text of the block.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]");
  const code = button && document.querySelector(button.dataset.clipboardTarget);
  if (code) button.setAttribute("data-clipboard-text", typed(code.textContent));
}, true);
