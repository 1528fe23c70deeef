// Filters: which methods and which setting are shown. Without this script the page shows everything.
(function () {
  "use strict";
  const bar = document.getElementById("filters");
  const status = document.getElementById("filter-status");
  const choices = [...bar.querySelectorAll("[data-show]")];
  const toggles = [...bar.querySelectorAll("[data-toggle]")];
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));

  function update() {
    const setting = choices.find(pressed).dataset.show;
    const shown = new Set(toggles.filter(pressed).map((button) => button.dataset.toggle));
    for (const node of document.querySelectorAll("[data-setting]")) {
      node.classList.toggle("off", setting !== "both" && node.dataset.setting !== setting);
    }
    for (const node of document.querySelectorAll("[data-method]")) {
      node.classList.toggle("off", !shown.has(node.dataset.method));
    }
    const which = setting === "both" ? "MTIL and MCIL" : setting.toUpperCase();
    status.textContent = `Showing ${shown.size} of ${toggles.length} methods, ${which}.`;
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
  bar.hidden = false;
})();
