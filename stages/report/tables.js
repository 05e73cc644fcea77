// Sorts every table.sortable, and filters and pages long ones and those with the class filtered. Its further rows are text in script.rows, parsed when first needed.
// Without this script the page shows the first rows, sorted by result.
const { compare } = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.querySelectorAll("thead th")];
  const waiting = table.closest("section").querySelector("script.rows");
  let size = body.rows.length, first = 0, rows, matching;
  const load = () => {
    if (rows) return;
    const further = document.createElement("template");
    further.innerHTML = waiting ? waiting.textContent : "";
    matching = rows = [...body.rows, ...further.content.children];
  };
  let show = () => body.replaceChildren(...matching.slice(first, first + size));
  let filter = () => { matching = rows; };

  heads.forEach((head, column) => {
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      load();
      // Results sort from the highest, names and texts from the first; a second click reverses the order.
      const figures = column > 0 && head.classList.contains("num");
      const sorted = head.getAttribute("aria-sort");
      const falls = sorted ? sorted === "ascending" : figures;
      const keyed = rows.map((row) => [value(row), row]);
      keyed.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");  // empty cells stay last
        const order = isNaN(a) || isNaN(b) ? compare(a, b) : a - b;
        return falls ? -order : order;
      });
      rows = keyed.map(([, row]) => row);
      heads.forEach((any) => any.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      first = 0;
      filter();
      show();
    });
  });

  if (!waiting && !table.classList.contains("filtered")) continue;
  const bar = document.createElement("div"), status = document.createElement("span");
  bar.className = "pager";
  status.setAttribute("role", "status");
  const press = (name, act) => {
    const button = document.createElement("button");
    button.textContent = name;
    button.addEventListener("click", () => { load(); act(); show(); });
    return button;
  };
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = translate("Filter: words of a row");
  input.setAttribute("aria-label", input.placeholder);
  filter = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    const text = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
    matching = input.value.trim() ? rows.filter((row) => words.every((word) => text(row).includes(word))) : rows;
  };
  input.addEventListener("input", () => { load(); first = 0; filter(); show(); });
  const back = press(translate("Previous"), () => { first -= size; }), on = press(translate("Next"), () => { first += size; });
  const all = press(translate("All"), () => { first = 0; size = rows.length; });
  const report = (count) => {
    const last = Math.min(first + size, count);
    status.textContent = count ? translate("{first} to {last} of {count}", { first: first + 1, last, count }) : translate("no row has these words");
    back.disabled = first === 0;
    on.disabled = last === count;
    all.disabled = size >= count;
    for (const button of [back, on, all]) button.hidden = rows === undefined ? !waiting : rows.length <= 50;
  };
  const draw = show;
  show = () => { draw(); report(matching.length); };
  bar.append(input, status, back, on, all);
  table.parentElement.before(bar);
  report(waiting ? Number(waiting.dataset.count) : size);
}
document.querySelectorAll("[data-sorts]").forEach((hint) => { hint.hidden = false; });
