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
    const which = choices.filter((button) => button.dataset.show !== "both" &&
      ["both", button.dataset.show].includes(setting)).map((button) => button.textContent).join(" and ");
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

  // Marks, boxes and cells carry their own words, which browsers show without this script: one or the other.
  for (const title of all("svg title")) {
    const node = title.parentElement;
    node.dataset.tip = title.textContent;
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", title.textContent.replaceAll("\n", ", "));
    title.remove();
    const show = () => about !== node && say(node.dataset.tip.split("\n"), node);
    node.addEventListener("mousemove", show); // not mouseenter: scrolling may have brought it under the pointer
    node.addEventListener("focus", show);
    node.addEventListener("mouseleave", silence);
    node.addEventListener("blur", silence);
    if (node.matches(".dot")) node.setAttribute("tabindex", "0");
  }

  // A matrix has one tab stop; arrows lead from cell to cell.
  for (const map of all("svg.heat")) {
    const columns = Number(map.dataset.columns);
    const cells = all(".cell", map);
    cells.forEach((cell, number) => cell.setAttribute("tabindex", number === 0 ? "0" : "-1"));
    map.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
      const number = cells.indexOf(event.target);
      const next = cells[number + step];
      const sameRow = Math.floor(number / columns) === Math.floor((number + step) / columns);
      if (!step || !next || (Math.abs(step) === 1 && columns > 1 && !sameRow)) return;
      event.preventDefault();
      event.target.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  // Panels with a value per method: curves at one step, by pointer or with the arrow keys, and histograms.
  for (const panel of all("svg.steps, svg.shapes-of")) {
    const facts = panel.dataset;
    const size = Number(facts.size || 0);
    const plot = panel.querySelector(".plot");
    const box = plot.getBBox();
    const cursor = document.createElementNS(panel.namespaceURI, "line");
    let step = size;
    panel.setAttribute("tabindex", "0");
    for (const [name, value] of Object.entries({ class: "cursor", y1: box.y, y2: box.y + box.height })) {
      cursor.setAttribute(name, value);
    }
    if (size) panel.append(cursor);
    const show = (aloud) => {
      const groups = all("[data-values]", panel).filter((group) => !group.classList.contains("off"));
      const order = size ? (a, b) => b[1] - a[1] : (a, b) => a[1] - b[1];
      const values = groups.map((group) => [name(group), group.dataset.values.split(" ")[step]])
        .filter((pair) => pair[1] !== undefined).sort(order);
      const when = !size ? "mean distance" : step ? `after ${step} of ${count(size, "task")} (percent)` : "at the start";
      const lines = size && !step ? [] : values.map(([label, value]) => `${value}  ${label}`);
      const x = box.x + box.width * step / Number(facts.high || 1);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.classList.add("on");
      say([`${facts.name}, ${when}`, ...lines, `${facts.zero}  Zero-shot`], panel, aloud);
    };
    panel.addEventListener("mousemove", (event) => {
      const seen = plot.getBoundingClientRect();
      const x = (event.clientX - seen.left) / seen.width * Number(facts.high || 0);
      step = Math.max(0, Math.min(size, Math.round(x)));
      show(false);
    });
    panel.addEventListener("focus", () => { if (panel.matches(":focus-visible")) show(false); });
    panel.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move || !size) return;
      event.preventDefault();
      step = Math.max(0, Math.min(size, step + move));
      show(true);
    });
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
