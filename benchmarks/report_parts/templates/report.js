"use strict";
// Text from files reaches the page only through textContent.

function sortBy(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows].filter((row) => !row.classList.contains("group"));
  const keys = new Map(rows.map((row) => [row, keyOf(row.cells[column])]));
  rows.sort((a, b) => compare(keys.get(a), keys.get(b), down));
  for (const group of table.querySelectorAll("tr.group")) group.hidden = true;
  table.tBodies[0].append(...rows);
}

function keyOf(cell) {
  if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
  const text = cell.textContent.trim();
  return cell.classList.contains("num") ? null : text.toLowerCase();
}

// cells without a number come last in both directions
function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" ? b - a : a.localeCompare(b, "en", { numeric: true });
  return down ? order : -order;
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = cell.textContent;
    button.addEventListener("click", () => sortBy(table, column));
    cell.replaceChildren(button);
  });
}

function words(input) {
  return input.value.toLowerCase().split(/\s+/).filter(Boolean);
}

function matches(row, wanted) {
  const text = row.textContent.toLowerCase();
  return wanted.every((word) => text.includes(word));
}

const tableFilter = document.getElementById("filter-tables");
const onlyOurs = document.getElementById("only-ours");
function filterTables() {
  const wanted = words(tableFilter);
  for (const table of document.querySelectorAll("table.numbers")) {
    for (const row of table.tBodies[0].rows) {
      if (row.classList.contains("group")) continue;
      row.hidden = (onlyOurs.checked && !row.classList.contains("ours")) || !matches(row, wanted);
    }
  }
}
tableFilter.addEventListener("input", filterTables);
onlyOurs.addEventListener("change", filterTables);

const numbers = document.getElementById("all-numbers");
if (numbers) {
  const filter = document.getElementById("filter-numbers");
  const primary = document.getElementById("only-primary");
  const count = document.getElementById("filter-count");
  const show = () => {
    const wanted = words(filter);
    numbers.classList.toggle("only-primary", primary.checked);
    let shown = 0;
    for (const row of numbers.tBodies[0].rows) {
      row.hidden = !matches(row, wanted);
      shown += !row.hidden && !(primary.checked && row.classList.contains("secondary"));
    }
    count.textContent = `${shown} shown`;
  };
  filter.addEventListener("input", show);
  primary.addEventListener("change", show);
  show();
}

// paper has no way to open what is closed: identities and task parts are printed whole
const paper = matchMedia("print");
let opened = [];
function openForPaper() {
  const closed = document.querySelectorAll("details.task:not([open]), details.checkpoint:not([open])");
  for (const one of closed) {
    one.open = true;
    opened.push(one);
  }
}
function closeAgain() {
  for (const one of opened) one.open = false;
  opened = [];
}
paper.addEventListener("change", () => (paper.matches ? openForPaper() : closeAgain()));
window.addEventListener("beforeprint", openForPaper);
window.addEventListener("afterprint", closeAgain);

const dialog = document.getElementById("details");
let explanations = null;

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function showDetails(places) {
  explanations ??= JSON.parse(document.getElementById("explanations").textContent);
  const chosen = places.map((place) => explanations[place]);
  const title = chosen.length === 1 ? chosen[0].title : `${chosen.length} records`;
  document.getElementById("details-title").textContent = title;
  const body = document.getElementById("details-body");
  body.replaceChildren();
  for (const one of chosen) {
    if (chosen.length > 1) body.append(element("h2", one.title));
    for (const [name, lines] of one.sections) {
      const list = document.createElement("dl");
      for (const [label, text] of lines) list.append(element("dt", label), element("dd", text));
      body.append(element("h3", name), list);
    }
  }
  dialog.showModal();
  dialog.scrollTop = 0;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.open");
  if (button && button.dataset.details) showDetails(button.dataset.details.split(" ").map(Number));
  else if (event.target === dialog) dialog.close();
});
document.getElementById("details-close").addEventListener("click", () => dialog.close());
