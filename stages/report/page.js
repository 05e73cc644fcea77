// Copies commands, makes what scrolls reachable with the keyboard, and reloads the page of a run that goes on.
(() => {
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls = target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight;
      if (scrolls) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  document.querySelectorAll(".scroll, .nav-list, main pre").forEach((node) => sizes.observe(node));
  for (const pre of document.querySelectorAll("pre.command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = translate("Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(pre.textContent);
      } catch {  // without permission the text is selected, so that a key copies it
        getSelection().selectAllChildren(pre);
        button.textContent = translate("Selected");
        return;
      }
      button.textContent = translate("Copied");
      setTimeout(() => { button.textContent = translate("Copy"); }, 2000);
    });
    pre.before(button);
  }
  const live = document.querySelector("[data-reload-s]");
  if (!live) return;
  const pause = document.createElement("button");
  pause.type = "button";
  pause.className = "copy";
  pause.textContent = translate("Pause");
  pause.setAttribute("aria-pressed", "false");
  pause.addEventListener("click", () => {
    pause.setAttribute("aria-pressed", pause.getAttribute("aria-pressed") !== "true");
  });
  live.append(" ", pause);
  setInterval(() => {
    const writing = document.activeElement?.matches("input, select");
    if (pause.getAttribute("aria-pressed") !== "true" && !writing) location.reload();
  }, 1000 * Number(live.dataset.reloadS));
})();
