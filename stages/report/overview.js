// The list of runs: sorts, filters and chooses runs to compare, names and pins them, and asks for the list again every few seconds.
// What a reader has set is in the page's address. Without this script the page reloads as it is.
const table = document.getElementById("runs");
if (table) {
  const find = (id) => document.getElementById(id);
  const body = table.tBodies[0], heads = [...table.querySelectorAll("th[data-key]")];
  const { compare } = new Intl.Collator("en", { numeric: true });
  const address = new URL(location.href), set = address.searchParams;
  const chosen = new Set(set.getAll("run"));
  let key = heads.some((head) => head.dataset.key === set.get("sort")) ? set.get("sort") : "started";
  let falls = set.has("sort") ? set.get("order") !== "up" : true;

  const value = (row) => row.dataset[key];
  const order = (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === "" || b === "") return (a === "") - (b === "");  // runs without a value stay last
    const order = isNaN(a) || isNaN(b) ? compare(a, b) : a - b;
    return falls ? -order : order;
  };
  const keep = () => {
    for (const name of ["sort", "order", "filter", "run"]) set.delete(name);
    if (key !== "started" || !falls) { set.set("sort", key); set.set("order", falls ? "down" : "up"); }
    if (find("filter").value.trim()) set.set("filter", find("filter").value.trim());
    for (const run of chosen) set.append("run", run);
    history.replaceState(null, "", address);
  };
  const show = () => {
    const words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...body.rows].sort(order);
    let matching = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => row.dataset.search.includes(word));
      matching += !row.hidden;
      row.querySelector(".edit").hidden = false;
      const box = row.querySelector(".pick input");
      box.hidden = false;
      box.checked = chosen.has(row.dataset.run);
    }
    if (rows.some((row, number) => row !== body.rows[number])) body.append(...rows);
    find("none").hidden = matching > 0;
    for (const head of heads) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    find("sort").value = key;
    const most = Number(find("chosen").dataset.most), link = find("compare");
    link.hidden = chosen.size < 2 || chosen.size > most;
    link.href = "/compare?" + new URLSearchParams([...chosen].map((run) => ["run", run]));
    link.textContent = translate("Compare {count} runs", { count: chosen.size });
    find("chosen").textContent =
      chosen.size > most ? translate("at most {count} runs can be compared", { count: most }) : chosen.size === 1 ? translate("choose another run to compare") : "";
  };
  const change = () => { keep(); show(); };

  for (const head of heads) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // figures and times begin with the highest, names with the first; a second click reverses the order
      falls = head.dataset.key === key ? !falls : !["run", "state"].includes(head.dataset.key);
      key = head.dataset.key;
      change();
    });
  }
  find("sort").addEventListener("change", (event) => {
    key = event.target.value;
    falls = !["run", "state"].includes(key);
    change();
  });
  find("filter").value = set.get("filter") ?? "";
  find("filter").addEventListener("input", change);
  body.addEventListener("change", (event) => {
    if (!event.target.matches(".pick input")) return;
    const run = event.target.closest("tr").dataset.run;
    if (event.target.checked) chosen.add(run); else chosen.delete(run);
    change();
  });
  document.querySelector(".controls").hidden = false;
  show();

  // A change is sent to the server, which records it in the store; the list is then asked for again.
  const send = async (row, changes) => {
    let problem = "";
    try {
      const answer = await fetch(`/run/${row.dataset.run}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(changes),
      });
      if (!answer.ok) problem = await answer.text();
    } catch {
      problem = translate("not changed: grpoflow ui has ended");
    }
    await refresh();
    if (problem) find("refreshed").textContent = problem;
    return problem === "";
  };
  const rename = (row) => {
    const holder = row.querySelector(".edit"), buttons = [...holder.childNodes], field = document.createElement("input");
    field.maxLength = Number(table.dataset.maxName);
    field.value = row.querySelector(".name")?.textContent ?? "";
    field.setAttribute("aria-label", translate("Name of {run}: Enter saves it, Escape keeps the old one", { run: row.dataset.run }));
    const close = () => { holder.replaceChildren(...buttons); row.querySelector(".rename").focus(); };
    field.addEventListener("keydown", async (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      event.preventDefault();  // else the same key would press the button that has the focus next
      close();
      if (event.key === "Enter") await send(row, { name: field.value.trim() });
    });
    const save = document.createElement("button");
    save.type = "button";
    save.textContent = translate("Save");
    save.addEventListener("click", async () => { close(); await send(row, { name: field.value.trim() }); });
    holder.replaceChildren(field, " ", save);
    field.select();
    field.focus();
  };
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (event.target.matches(".rename")) rename(row);
    if (event.target.matches(".toggle")) send(row, { pinned: event.target.dataset.pinned !== "true" });
  });

  const refresh = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.pathname);
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const rows = [...page.querySelectorAll("#runs > tbody > tr")];
      const known = new Map([...body.rows].map((row) => [row.dataset.run, row]));
      for (const row of rows) {
        const old = known.get(row.dataset.run);
        known.delete(row.dataset.run);
        if (!old) { body.append(document.adoptNode(row)); continue; }
        if (old.querySelector(".edit input")) continue;  // its name is being written
        const active = document.activeElement, focused = !old.contains(active) ? "" : active.className ? `.${active.className}` : active.tagName;
        const box = old.querySelector(".pick input");
        for (const node of row.querySelectorAll(".edit, .pick input")) node.hidden = box.hidden;
        row.querySelector(".pick input").checked = box.checked;
        if (old.outerHTML === row.outerHTML) continue;
        old.replaceWith(document.adoptNode(row));
        if (focused) row.querySelector(focused)?.focus();
      }
      for (const row of known.values()) row.remove();
      find("refreshed").textContent = "";
      show();
    } catch {
      find("refreshed").textContent = translate("not refreshed: grpoflow ui has ended");
    }
  };
  setInterval(refresh, 1000 * table.dataset.refresh);
}
