// Filters, values under the pointer, and files to save. Without this script the page shows everything there is.
(function () {
  "use strict";
  const one = (selector) => document.querySelector(selector);
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
  const content = (id) => JSON.parse(document.getElementById(id).textContent);

  // -- filters ---------------------------------------------------------------------------------------------------

  const bar = one("#filters");
  const choices = all("[data-show]", bar);
  const toggles = all("[data-toggle]", bar);
  const selects = all("[data-choose]", bar);
  const runs = content("runs");
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  const hide = (node, hidden) => node.classList.toggle("off", hidden);
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

  function update() {
    const setting = choices.find(pressed).dataset.show;
    const methods = new Set(toggles.filter(pressed).map((button) => button.dataset.toggle));
    const chosen = Object.fromEntries(selects.map((select) => [select.dataset.choose, select.value]));
    const elsewhere = (key, value) => Boolean(chosen[key] && value && value !== chosen[key]);
    for (const node of all("[data-setting], [data-method], [data-benchmark], [data-order]")) {
      const about = node.dataset;
      hide(node, Boolean(about.setting && setting !== "both" && about.setting !== setting) ||
        Boolean(about.method && !methods.has(about.method)) ||
        elsewhere("benchmark", about.benchmark) || elsewhere("order", about.order));
    }
    // A table whose methods are all hidden has nothing left to say.
    for (const block of all(".with-notes")) {
      const rows = all("tbody tr[data-method]", block);
      hide(block, rows.length > 0 && rows.every((row) => row.classList.contains("off")));
    }
    const shown = runs.filter(([method, benchmark, order]) => methods.has(`method-${method}`) &&
      !elsewhere("benchmark", `benchmark-${benchmark}`) && !elsewhere("order", `order-${order}`)).length;
    const which = setting === "both" ? "MTIL and MCIL" : setting.toUpperCase();
    one("#filter-status").textContent =
      `Showing ${methods.size} of ${count(toggles.length, "method")}, ${shown} of ${count(runs.length, "run")}, ${which}.`;
    one("#nothing").hidden = shown > 0;
    one("#reset").hidden = setting === "both" && methods.size === toggles.length &&
      selects.every((select) => !select.value);
    document.documentElement.style.scrollPaddingTop =
      getComputedStyle(bar).position === "sticky" ? `${bar.offsetHeight + 16}px` : "1rem";
    silence();
  }

  for (const button of choices) {
    button.addEventListener("click", () => {
      for (const other of choices) press(other, other === button);
      update();
    });
  }
  for (const button of toggles) {
    button.addEventListener("click", () => {
      press(button, !pressed(button));
      update();
    });
  }
  for (const button of all("[data-all]", bar)) {
    button.addEventListener("click", () => {
      for (const toggle of toggles) press(toggle, button.dataset.all === "true");
      update();
    });
  }
  for (const select of selects) select.addEventListener("change", update);
  one("#reset").addEventListener("click", () => {
    for (const toggle of toggles) press(toggle, true);
    for (const button of choices) press(button, button.dataset.show === "both");
    for (const select of selects) select.value = "";
    update();
    choices[0].focus(); // this button is gone now
  });

  // -- values ----------------------------------------------------------------------------------------------------

  const tip = one("#tip");
  const said = one("#tip-said");
  const names = Object.fromEntries(toggles.map((button) => [button.dataset.toggle, button.textContent]));
  const name = (node) => names[node.dataset.method];
  let about = null; // what the tip is about

  // Lines beside a node; said aloud where the focus does not move.
  function say(lines, node, aloud) {
    about = node;
    tip.replaceChildren(...lines.map((line, number) => {
      const row = document.createElement("div");
      row.textContent = line;
      if (number === 0) row.className = "tip-title";
      return row;
    }));
    tip.hidden = false;
    place();
    if (aloud) said.textContent = lines.join(", ");
  }

  function place() {
    const box = about.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const left = box.left + box.width / 2 - size.width / 2;
    tip.style.left = `${Math.max(4, Math.min(left, document.documentElement.clientWidth - size.width - 4))}px`;
    tip.style.top = `${box.top - size.height - 8 < 4 ? box.bottom + 8 : box.top - size.height - 8}px`;
  }

  function silence() {
    tip.hidden = true;
    about = null;
    for (const line of all(".cursor.on")) line.classList.remove("on");
  }

  // Matrices: the headings and the zero-shot row say what a cell means.
  const text = (node) => node.textContent.trim();
  function cellLines(cell) {
    const row = cell.parentElement;
    const table = cell.closest("table");
    const name = text(table.tHead.rows[0].cells[cell.cellIndex]);
    const value = cell.dataset.v;
    if (value === undefined) return [name, "not learned yet"];
    const start = table.tBodies[0].rows[0];
    if (row === start) return [`${name}, before any task`, `${value} %`];
    const change = Number(value) - Number(start.cells[cell.cellIndex].dataset.v);
    return [`${name}, after ${text(row.cells[0])}`, `${value} %`,
      `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(2)} against zero-shot`];
  }
  for (const table of all("table.heat")) {
    const cells = all("tbody td", table);
    cells.forEach((cell, number) => {
      cell.tabIndex = number === 0 ? 0 : -1;
      cell.setAttribute("aria-describedby", "tip");
    });
    const enter = (event) => {
      const cell = event.target.closest("tbody td");
      if (cell && cell !== about) say(cellLines(cell), cell);
    };
    table.addEventListener("mousemove", enter);
    table.addEventListener("focusin", enter);
    table.addEventListener("mouseleave", silence);
    table.addEventListener("focusout", silence);
    table.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      const cell = event.target.closest("tbody td");
      if (!step || !cell) return;
      const row = table.tBodies[0].rows[cell.parentElement.sectionRowIndex + step[0]];
      const next = row && row.cells[cell.cellIndex + step[1]];
      if (!next || next.tagName !== "TD") return;
      event.preventDefault();
      cell.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  // Curves: all methods at one step, by pointer or with the arrow keys.
  for (const panel of all("svg.steps")) {
    const facts = panel.dataset;
    const size = Number(facts.size), left = Number(facts.left), right = Number(facts.right);
    const cursor = panel.querySelector(".cursor");
    let step = size;
    panel.setAttribute("tabindex", "0");
    const show = (aloud) => {
      const groups = all("g[data-values]", panel).filter((group) => !group.classList.contains("off"));
      const values = groups.map((group) => [name(group), group.dataset.values.split(" ")[step]])
        .filter((pair) => pair[1] !== undefined).sort((a, b) => b[1] - a[1]);
      const title = step ? `${facts.name}, after ${step} of ${count(size, "task")} (percent)` : `${facts.name}, at the start`;
      const lines = step ? values.map(([label, value]) => `${value}  ${label}`) : [];
      const x = left + (right - left) * step / size;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.classList.add("on");
      say([title, ...lines, `${facts.zero}  Zero-shot`], panel, aloud);
    };
    panel.addEventListener("mousemove", (event) => {
      const box = panel.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * panel.viewBox.baseVal.width;
      step = Math.max(0, Math.min(size, Math.round((x - left) / (right - left) * size)));
      show(false);
    });
    panel.addEventListener("focus", () => { if (panel.matches(":focus-visible")) show(false); });
    panel.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      step = Math.max(0, Math.min(size, step + move));
      show(true);
    });
    panel.addEventListener("mouseleave", silence);
    panel.addEventListener("blur", silence);
  }

  // Marks and boxes that carry their own words, and histograms.
  for (const node of all("[data-tip]")) {
    node.setAttribute("tabindex", "0");
    const show = () => about !== node && say(node.dataset.tip.split(/: (?=accuracy|median)|, (?=forgetting|quartiles)/), node);
    node.addEventListener("mousemove", show); // not mouseenter: scrolling may have brought it under the pointer
    node.addEventListener("focus", show);
    node.addEventListener("mouseleave", silence);
    node.addEventListener("blur", silence);
  }
  for (const panel of all("svg.shapes-of")) {
    panel.setAttribute("tabindex", "0");
    const show = () => {
      if (about === panel) return;
      const groups = all("g[data-mean]", panel).filter((group) => !group.classList.contains("off"));
      const means = groups.map((group) => [name(group), group.dataset.mean]).sort((a, b) => a[1] - b[1]);
      say([`${panel.dataset.name}, mean distance`, ...means.map(([label, mean]) => `${mean}  ${label}`),
        `${panel.dataset.zero}  Zero-shot`], panel);
    };
    panel.addEventListener("mousemove", show);
    panel.addEventListener("focus", show);
    panel.addEventListener("mouseleave", silence);
    panel.addEventListener("blur", silence);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") silence(); });
  // Moving the focus scrolls: then the tip goes along. Under a resting pointer something else comes to lie.
  document.addEventListener("scroll", () => {
    if (about) about.contains(document.activeElement) ? place() : silence();
  }, { passive: true, capture: true });

  // -- files -----------------------------------------------------------------------------------------------------

  const kinds = { csv: "text/csv", tex: "application/x-tex" };
  let files = null;
  for (const button of all("[data-save]")) {
    button.addEventListener("click", () => {
      files = files || content("files");
      const { save, kind } = button.dataset;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([files[save][kind]], { type: `${kinds[kind]};charset=utf-8` }));
      link.download = `${save}.${kind}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  for (const node of [bar, ...all(".saves")]) node.hidden = false;
  update();
})();
