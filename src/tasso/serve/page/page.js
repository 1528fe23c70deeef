"use strict";

const byId = (id) => document.getElementById(id);
const file = byId("file"), task = byId("task"), names = byId("names"), preview = byId("preview");
let about = null;
let image = null;
let request = null; // the latest question; answers to earlier ones are not shown

function make(kind, text, className) {
  const node = document.createElement(kind);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function say(status, error = "") {
  byId("status").textContent = status;
  byId("error").textContent = error;
}

function chosen() {
  return document.querySelector("input[name=among]:checked").value;
}

function choose(value) {
  document.querySelector(`input[name=among][value=${value}]`).checked = true;
}

function question() {
  const query = new URLSearchParams({ top: "5" });
  if (chosen() === "task") query.set("task", task.value);
  if (chosen() === "names") query.set("classes", names.value);
  return query;
}

function percent(share) {
  return share >= 0.9995 || share < 0.0005 ? (share < 0.5 ? "< 0.1 %" : "> 99.9 %") : `${(100 * share).toFixed(1)} %`;
}

function cell(guess, best) {
  const node = make("td", undefined, best ? "best" : "");
  if (!guess) return node;
  node.append(make(best ? "strong" : "span", guess.class));
  if (guess.task) node.append(make("span", guess.task, "of"));
  node.append(make("span", percent(guess.probability), "share"));
  const bar = make("span", undefined, "bar"), filled = make("span");
  bar.setAttribute("aria-hidden", "true");
  filled.style.width = `${100 * guess.probability}%`;
  bar.append(filled);
  node.append(bar);
  return node;
}

function show(answer) {
  const head = make("tr"), last = answer.stages.at(-1).predictions[0];
  const first = make("th", "Rank");
  first.scope = "col";
  head.append(first, ...answer.stages.map((stage) => Object.assign(make("th", stage.title), { scope: "col" })));
  document.querySelector("thead").replaceChildren(head);
  const rows = answer.stages[0].predictions.map((_, rank) => {
    const row = make("tr");
    row.append(Object.assign(make("th", `${rank + 1}`), { scope: "row" }));
    for (const stage of answer.stages) {
      const guess = stage.predictions[rank];
      row.append(cell(guess, guess && guess.class === last.class && guess.task === last.task));
    }
    return row;
  });
  document.querySelector("tbody").replaceChildren(...rows);
  byId("caption").textContent = `Among ${answer.among}; each column is one model.`;
  byId("results").hidden = false;
  say(`The model ${answer.stages.at(-1).title}: ${last.class}, ${percent(last.probability)}.`);
}

async function ask() {
  if (!image || !about) return;
  if (chosen() === "names" && !names.value.trim()) {
    say("Type one class name or more, separated by commas.");
    return;
  }
  if (image.size > about.most_bytes) {
    refuse(`${image.name || "the file"} is larger than the ${mebibytes()} that are allowed.`);
    return;
  }
  request?.abort();
  const mine = (request = new AbortController());
  document.body.classList.add("busy");
  say("Looking …");
  try {
    const response = await fetch(`classify?${question()}`, { method: "POST", body: image, signal: mine.signal });
    const answer = await response.json();
    if (mine !== request) return;
    if (response.ok) show(answer);
    else refuse(answer.error);
  } catch (problem) {
    if (mine === request && problem.name !== "AbortError") refuse("The server does not answer. Is it still running?");
  } finally {
    if (mine === request) document.body.classList.remove("busy");
  }
}

function refuse(why) {
  byId("results").hidden = true;
  say("", why.charAt(0).toUpperCase() + why.slice(1));
}

function mebibytes() {
  return `${+(about.most_bytes / 1024 ** 2).toPrecision(3)} MiB`;
}

function take(files) {
  if (!files.length) return;
  image = files[0];
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(image);
  preview.alt = `The image ${image.name || "that was pasted"}`;
  preview.hidden = false;
  byId("invitation").hidden = true;
  ask();
}

// What the browser cannot show, the server may still read (TIFF): then there is only the name.
preview.addEventListener("error", () => {
  preview.hidden = true;
  byId("invitation").textContent = image.name;
  byId("invitation").hidden = false;
});

file.addEventListener("change", () => take(file.files));
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  take(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => take(event.clipboardData.files));
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
document.querySelectorAll("input[name=among]").forEach((radio) => radio.addEventListener("change", ask));
task.addEventListener("change", () => (choose("task"), ask()));
names.addEventListener("input", () => choose("names"));
names.addEventListener("change", ask);

async function begin() {
  about = await (await fetch("run.json")).json();
  const classes = about.tasks.reduce((sum, one) => sum + one.classes, 0);
  byId("about").textContent =
    `${about.run}: ${about.label}, ${about.model}. ` +
    `${about.stages.length} ${about.stages.length === 1 ? "model" : "models"} of ${about.tasks.length} tasks.`;
  byId("all").textContent = `all ${classes} classes of the run`;
  byId("limit").textContent = `Up to ${mebibytes()}. It is looked at on this server and not stored.`;
  byId("meaning").textContent = about.meaning;
  if (about.gone.length) {
    byId("gone").textContent = `Their models were removed after the run, so they have no column: ${about.gone.join(", ")}.`;
    byId("gone").hidden = false;
  }
  task.replaceChildren(...about.tasks.map((one) => new Option(`${one.name} (${one.classes} classes)`, one.name)));
  ask();
}

begin().catch(() => say("", "The server does not answer. Is it still running?"));
