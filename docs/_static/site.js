// The keyboard can scroll wide tables and code, and the two side bars have names.
document.addEventListener("DOMContentLoaded", () => {
  for (const wide of document.querySelectorAll(".table-wrapper, .highlight pre")) wide.tabIndex = 0;
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Page");
});
