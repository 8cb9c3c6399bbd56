document.addEventListener("DOMContentLoaded", () => {
  // Each line of a command is an element, and its options do not break at hyphens.
  for (const block of document.querySelectorAll(".highlight-sh, .highlight-bash, .highlight-console")) {
    const lines = block.querySelector("pre").innerHTML.trimEnd().split("\n").map((line) =>
      `<span class="line">${line.replace(/--[\w-]+/g, '<span class="option">$&</span>') || " "}</span>`);
    block.querySelector("pre").innerHTML = lines.join("");
    block.classList.add("command");
  }
  // A search for --option finds the option before the pages that have its words.
  if (typeof Scorer !== "undefined" && new URLSearchParams(location.search).get("q")?.startsWith("--"))
    Scorer.objNameMatch = Scorer.objPartialMatch = 100;
  // The keyboard can scroll wide tables and code, and the two side bars have names.
  for (const wide of document.querySelectorAll(".table-wrapper, .highlight pre")) wide.tabIndex = 0;
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Page");
});
