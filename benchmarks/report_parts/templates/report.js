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

// a row matches by what it shows and by the family of its task
function matches(row, wanted) {
  const hidden = row.querySelector("[data-words]");
  const text = `${row.textContent} ${hidden ? hidden.dataset.words : ""}`.toLowerCase();
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

function element(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text ?? "";
  if (className) made.className = className;
  return made;
}

// every table can be copied, as Markdown or as LaTeX with booktabs
function cells(table) {
  const shown = [...table.rows].filter((row) => !row.hidden && !row.classList.contains("group"));
  return shown.map((row) => [...row.cells].map((cell) => cell.innerText.trim().replace(/\s+/g, " ")));
}

function asMarkdown(table) {
  const [head, ...body] = cells(table).map((row) => row.map((text) => text.replaceAll("|", "\\|")));
  const rule = [...table.tHead.rows[0].cells].map((c) => (c.classList.contains("num") ? "---:" : ":---"));
  return [head, rule, ...body].map((row) => `| ${row.join(" | ")} |`).join("\n") + "\n";
}

const LATEX = { "±": "$\\pm$", "–": "--", "−": "$-$", "→": "$\\rightarrow$", "✓": "$\\checkmark$" };
function asLatex(table) {
  const escape = (text) =>
    text
      .replace(/[\\{}]/g, (sign) => (sign === "\\" ? "\\textbackslash{}" : `\\${sign}`))
      .replace(/[#$%&_]/g, "\\$&")
      .replace(/[~^]/g, (sign) => `\\${sign}{}`)
      .replace(/[±–−→✓]/g, (sign) => LATEX[sign]);
  const [head, ...body] = cells(table).map((row) => `${row.map(escape).join(" & ")} \\\\`);
  const columns = [...table.tHead.rows[0].cells].map((c) => (c.classList.contains("num") ? "r" : "l"));
  const lines = [`\\begin{tabular}{${columns.join("")}}`, "\\toprule", head, "\\midrule"];
  return [...lines, ...body, "\\bottomrule", "\\end{tabular}", ""].join("\n");
}

async function copy(button, text) {
  const named = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // a page from the disk may have no clipboard: the text is selected for Ctrl+C
    const area = element("textarea", text, "copied-text");
    area.setAttribute("aria-label", "Text to copy");
    button.parentElement.after(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
    area.addEventListener("blur", () => area.remove());
    if (button.textContent === "Copied") area.remove();
  }
  setTimeout(() => (button.textContent = named), 1500);
}

// the lines of a chart as a table: the task, then the numbers; the signs repeat the words
function tableOf(chart) {
  const table = element("table");
  const [head, body] = [table.createTHead(), table.createTBody()];
  for (const line of chart.querySelectorAll(".line")) {
    const row = (line.matches(".scale") ? head : body).insertRow();
    for (const [place, shown] of line.querySelectorAll(".who, .value > *").entries()) {
      const parts = [...shown.childNodes].filter((part) => part.ariaHidden !== "true");
      const text = shown.title || parts.map((part) => part.textContent).join(" ");
      row.append(element("td", text, place > 0 && place < 4 ? "num" : ""));
    }
  }
  return table;
}

function addCopyButtons(shown, table = () => shown) {
  const bar = element("p", "", "copy");
  for (const [name, format] of [["Copy as Markdown", asMarkdown], ["as LaTeX", asLatex]]) {
    const button = element("button", name);
    button.type = "button";
    button.addEventListener("click", () => copy(button, format(table())));
    bar.append(button);
  }
  (shown.closest(".scroll") ?? shown).after(bar);
}
for (const table of document.querySelectorAll("table.copied")) addCopyButtons(table);
for (const chart of document.querySelectorAll("#compare-rows, #beside .chart")) addCopyButtons(chart, () => tableOf(chart));

// two checkpoints, task by task: the numbers were compared when the page was made
const groups = JSON.parse(document.getElementById("comparisons").textContent);
const TWO_SIDED = 1.959964;
const LEVEL = 0.05;

// which differences are sure among all of them: Holm
function holm(chances) {
  const order = chances.map((_, place) => place).sort((a, b) => chances[a] - chances[b]);
  const sure = chances.map(() => false);
  for (const [rank, place] of order.entries()) {
    if (!(chances[place] < LEVEL / (order.length - rank))) break;
    sure[place] = true;
  }
  return sure;
}

// the place of a pair among all pairs of the checkpoints that have the task, row by row
function pairOf(places, first, second) {
  const [i, j] = [places.indexOf(Math.min(first, second)), places.indexOf(Math.max(first, second))];
  return i * places.length - (i * (i + 1)) / 2 + (j - i - 1);
}

function differences(group, first, second) {
  const rows = [];
  for (const task of group.tasks) {
    if (task.values[first] === null || task.values[second] === null) continue;
    const pair = pairOf(task.places, first, second);
    const [error, chance] = [task.errors[pair], task.chances[pair]];
    rows.push({ task, error, chance, points: task.values[first] - task.values[second] });
  }
  const judged = rows.filter((row) => row.error !== null);
  const sure = holm(judged.map((row) => row.chance));
  judged.forEach((row, place) => (row.sure = sure[place]));
  return rows.sort((a, b) => b.points - a.points);
}

function sentenceOf(names, rows) {
  const judged = rows.filter((row) => row.error !== null);
  const better = judged.filter((row) => row.sure && row.points > 0).length;
  const worse = judged.filter((row) => row.sure && row.points < 0).length;
  const unknown = rows.length - judged.length;
  const [one, other] = names;
  const total = `${judged.length} task${judged.length === 1 ? "" : "s"}`;
  let told = `${one} and ${other} differ surely on ${better + worse} of ${total}`;
  if (worse > better) told = `${one} is surely worse than ${other} on ${worse} of ${total}, better on ${better}`;
  else if (better) told = `${one} is surely better than ${other} on ${better} of ${total}, worse on ${worse}`;
  return `${told}, undecided on ${judged.length - better - worse}${unknown ? `; ${unknown} without known errors` : ""}.`;
}

function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function link(task, place) {
  const made = element("a", task.texts[place], "open");
  made.href = task.addresses[place] || "#compare";
  return made;
}

function rowOf({ task, points, error, sure }, first, second, half) {
  const place = (value) => `${50 + (50 * Math.max(-half, Math.min(half, value))) / half}%`;
  const reach = TWO_SIDED * (error ?? 0);
  const word = error === null ? "not-judged" : !sure ? "undecided" : points > 0 ? "above" : "below";
  const line = element("div", "", "line");
  const who = element("div", "", "who");
  who.append(element("b", task.key), element("span", task.metric));
  const interval = `[${signed(points - reach)}, ${signed(points + reach)}]`;
  const track = drawn("svg", { class: "track", role: "img", "aria-label": `${signed(points)} ${interval}` });
  const from = points < 0 ? place(points) : "50%";
  const width = `${(50 * Math.min(half, Math.abs(points))) / half}%`;
  track.append(
    drawn("rect", { class: `bar ${word}`, x: from, width, y: 6, height: 12 }),
    drawn("line", { class: "zero", x1: "50%", x2: "50%", y1: 1, y2: 23 }),
    drawn("line", { class: "whisker", x1: place(points - reach), x2: place(points + reach), y1: 12, y2: 12 }),
  );
  const value = element("div", "", "value pair");
  const [one, other] = [element("span"), element("span")];
  one.append(link(task, first));
  other.append(link(task, second));
  const verdict = element("span", "", `verdict ${word}`);
  const said = { above: "better", below: "worse", undecided: "undecided", "not-judged": "no error" }[word];
  const alone = word === "undecided" && Math.abs(points) > reach ? ` ${points > 0 ? "better" : "worse"} if taken alone` : "";
  verdict.append(said, " ", element("small", error === null ? "" : interval + alone));
  value.append(one, other, element("b", signed(points)), verdict);
  line.append(who, track, value);
  line.title = task.how;
  return line;
}

function headOfRows(names) {
  const [head, value] = [element("div", "", "line scale"), element("div", "", "value pair")];
  for (const word of ["first", "second", "points", "95 % interval"]) value.append(element("span", word));
  for (const [place, name] of names.entries()) value.children[place].title = name;
  head.append(element("div", "task", "who"), element("div", "worse | better", "middle"), value);
  return head;
}

const compareRows = document.getElementById("compare-rows");
if (compareRows) {
  const at = (name) => document.getElementById(`compare-${name}`);
  const [chosen, first, second, filter] = [at("group"), at("first"), at("second"), document.getElementById("filter-compare")];
  const group = () => groups[chosen ? Number(chosen.value) : 0];
  const show = () => {
    const [a, b] = [Number(first.value), Number(second.value)];
    const { names, conditions } = group();
    const rows = a === b ? [] : differences(group(), a, b);
    at("sentence").textContent = a === b ? "Choose two different checkpoints." : sentenceOf([names[a], names[b]], rows);
    at("conditions").textContent = `${conditions}. First minus second in points, with the 95 % interval; the colored ones are sure together (Holm). Tests: ${[...new Set(rows.map((row) => testOf(row.task.how)))].join("; ")}.`;
    const wanted = words(filter);
    const shown = rows.filter(({ task }) => wanted.every((word) => `${task.key} ${task.metric} ${task.family}`.toLowerCase().includes(word)));
    const half = Math.max(1, ...shown.map((row) => Math.abs(row.points) + TWO_SIDED * (row.error ?? 0)));
    const families = grouped(shown);
    compareRows.replaceChildren(...(shown.length ? [headOfRows([names[a], names[b]])] : []));
    for (const [family, own] of families) {
      const part = element("details", "", "family");
      part.open = true;
      const better = own.filter((row) => row.sure && row.points > 0).length;
      const worse = own.filter((row) => row.sure && row.points < 0).length;
      const summary = element("summary");
      summary.append(element("span", family, "name"), element("span", `${better} better, ${worse} worse, ${own.length - better - worse} undecided`, "count"));
      part.append(summary, ...own.map((row) => rowOf(row, a, b, half)));
      compareRows.append(part);
    }
  };
  const fill = () => {
    const { names, reference } = group();
    for (const select of [first, second]) {
      select.replaceChildren(...names.map((name, place) => new Option(name, place)));
    }
    first.value = reference === 0 ? 1 : 0;
    second.value = reference;
    show();
  };
  chosen?.addEventListener("change", fill);
  for (const select of [first, second]) select.addEventListener("change", show);
  filter.addEventListener("input", show);
  fill();
}

// the kind of a test, without the number of images and the source of an assumption
function testOf(how) {
  return how.replace(/ on the same [\d,]+ images| on the same images| \(.*\)/g, "");
}

function grouped(rows) {
  const found = new Map();
  for (const row of rows) found.set(row.task.family, [...(found.get(row.task.family) ?? []), row]);
  return found;
}

// a number's address opens everything behind it, also after a reload
const dialog = document.getElementById("details");
let explanations = null;
let stored = null;

function showDetails(addresses) {
  stored ??= JSON.parse(document.getElementById("explanations").textContent);
  explanations ??= new Map(
    stored.records.map((one) => [one.address, one]),
  );
  const shown = addresses.map((address) => explanations.get(address)).filter(Boolean);
  if (!shown.length) return false;
  const title = shown.length === 1 ? shown[0].title : `${shown.length} records`;
  document.getElementById("details-title").textContent = title;
  const body = document.getElementById("details-body");
  body.replaceChildren();
  for (const one of shown) {
    if (shown.length > 1) body.append(element("h3", one.title));
    for (const [name, lines] of one.sections.map((place) => stored.sections[place])) {
      const list = document.createElement("dl");
      for (const [label, text] of lines) list.append(element("dt", label), element("dd", text));
      body.append(element("h3", name), list);
    }
  }
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  return true;
}

function openAddress() {
  const hash = location.hash.slice(1);
  const opened = hash && !document.getElementById(hash) && showDetails(hash.split(",").map(decodeURIComponent));
  if (!opened && dialog.open) dialog.close();
}
window.addEventListener("hashchange", openAddress);
document.addEventListener("click", (event) => {
  const number = event.target.closest("a.open");
  if (number && number.hash === location.hash) openAddress();
  else if (event.target === dialog) dialog.close();
});
function forgetAddress() {
  const here = location.hash.slice(1);
  if (here && !document.getElementById(here)) history.replaceState(null, "", location.pathname + location.search);
}
document.getElementById("details-close").addEventListener("click", () => {
  dialog.close();
  forgetAddress();
});
dialog.addEventListener("close", forgetAddress);
openAddress();
