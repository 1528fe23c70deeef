"use strict";

const byId = (id) => document.getElementById(id);
const file = byId("file"), task = byId("task"), names = byId("names"), preview = byId("preview");
let metadata = null; // of the run
let image = null;
let request = null; // the latest one; responses to earlier ones are not shown

function make(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function say(status, error = "") {
  byId("status").textContent = status;
  byId("error").textContent = error;
}

function chosen() {
  return document.querySelector("input[name=candidates]:checked").value;
}

function choose(value) {
  document.querySelector(`input[name=candidates][value=${value}]`).checked = true;
}

function queryParameters() {
  const query = new URLSearchParams({ top: "5" });
  if (chosen() === "task") query.set("task", task.value);
  if (chosen() === "names") query.set("classes", names.value);
  return query;
}

function percent(probability) {
  if (probability < 0.0005) return "< 0.1 %";
  return probability >= 0.9995 ? "> 99.9 %" : `${(100 * probability).toFixed(1)} %`;
}

function cell(prediction, best) {
  const node = make("td", undefined, best ? "best" : "");
  if (!prediction) return node;
  node.append(make(best ? "strong" : "span", prediction.class));
  if (prediction.task) node.append(make("span", prediction.task, "of"));
  node.append(make("span", percent(prediction.probability), "share"));
  const bar = make("span", undefined, "bar"), filled = make("span");
  bar.setAttribute("aria-hidden", "true");
  filled.style.width = `${100 * prediction.probability}%`;
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
      const prediction = stage.predictions[rank];
      row.append(cell(prediction, prediction && prediction.class === last.class && prediction.task === last.task));
    }
    return row;
  });
  document.querySelector("tbody").replaceChildren(...rows);
  byId("caption").textContent = `${answer.candidates}; each column is one model.`;
  byId("results").hidden = false;
  say(`The model ${answer.stages.at(-1).title}: ${last.class}, ${percent(last.probability)}.`);
}

async function classify() {
  if (!image || !metadata) return;
  if (chosen() === "names" && !names.value.trim()) {
    say("Type one class name or more, separated by commas.");
    return;
  }
  if (image.size > metadata.max_bytes) {
    refuse(`${image.name || "the file"} is larger than the ${mebibytes()} that are allowed.`);
    return;
  }
  request?.abort();
  const own = (request = new AbortController());
  document.body.classList.add("busy");
  say("Classifying …");
  try {
    const response = await fetch(`classify?${queryParameters()}`, { method: "POST", body: image, signal: own.signal });
    const answer = await response.json();
    if (own !== request) return;
    if (response.ok) show(answer);
    else refuse(answer.error);
  } catch (problem) {
    if (own === request && problem.name !== "AbortError") refuse("The server does not answer. Is it still running?");
  } finally {
    if (own === request) document.body.classList.remove("busy");
  }
}

function refuse(why) {
  byId("results").hidden = true;
  say("", why.charAt(0).toUpperCase() + why.slice(1));
}

function mebibytes() {
  return `${+(metadata.max_bytes / 1024 ** 2).toPrecision(3)} MiB`;
}

function take(files) {
  if (!files.length) return;
  image = files[0];
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(image);
  preview.alt = `The image ${image.name || "that was pasted"}`;
  preview.hidden = false;
  byId("hint").hidden = true;
  classify();
}

// The server reads formats that browsers do not show (TIFF): then only the name is shown.
preview.addEventListener("error", () => {
  preview.hidden = true;
  byId("hint").textContent = image.name;
  byId("hint").hidden = false;
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
byId("query").addEventListener("submit", (event) => {
  event.preventDefault();
  classify();
});
document.querySelectorAll("input[name=candidates]").forEach((radio) => radio.addEventListener("change", classify));
task.addEventListener("change", () => (choose("task"), classify()));
names.addEventListener("input", () => choose("names"));
names.addEventListener("change", classify);

async function begin() {
  metadata = await (await fetch("run.json")).json();
  const classes = metadata.tasks.reduce((sum, task) => sum + task.classes, 0);
  byId("run").textContent =
    `${metadata.run}: ${metadata.label}, ${metadata.model}. ` +
    `${metadata.stages.length} ${metadata.stages.length === 1 ? "model" : "models"} of ${metadata.tasks.length} tasks.`;
  byId("all").textContent = `all ${classes} classes of the run`;
  byId("limit").textContent = `Up to ${mebibytes()}. Images are classified on this server and not stored.`;
  byId("probability-note").textContent = metadata.probability_note;
  if (metadata.removed.length) {
    byId("removed").textContent = `No column, because the checkpoint was removed: ${metadata.removed.join(", ")}.`;
    byId("removed").hidden = false;
  }
  task.replaceChildren(...metadata.tasks.map((one) => new Option(`${one.name} (${one.classes} classes)`, one.name)));
  classify();
}

begin().catch(() => say("", "The server does not answer. Is it still running?"));
