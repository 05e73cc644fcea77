// Sorts, filters and turns over every table.sortable; its further rows wait as text in script.rows, and are parsed when
// first asked for. Without this script the first rows stand there, sorted by result.
const { compare } = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.querySelectorAll("thead th")];
  const waiting = table.closest("section").querySelector("script.rows");
  let size = body.rows.length, first = 0, rows, fitting;
  const load = () => {
    if (rows) return;
    const further = document.createElement("template");
    further.innerHTML = waiting ? waiting.textContent : "";
    fitting = rows = [...body.rows, ...further.content.children];
  };
  let show = () => body.replaceChildren(...fitting.slice(first, first + size));
  let filter = () => { fitting = rows; };

  heads.forEach((head, column) => {
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      load();
      // Results begin with the highest, names and texts with the first; a second click turns round.
      const figures = column > 0 && head.classList.contains("num");
      const sorted = head.getAttribute("aria-sort");
      const falls = sorted ? sorted === "ascending" : figures;
      const keyed = rows.map((row) => [value(row), row]);
      keyed.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");  // what has no value stays last
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

  if (!waiting) continue;
  const bar = document.createElement("div"), told = document.createElement("span");
  bar.className = "pager";
  told.setAttribute("role", "status");
  const press = (name, act) => {
    const button = document.createElement("button");
    button.textContent = name;
    button.addEventListener("click", () => { load(); act(); show(); });
    return button;
  };
  const wanted = document.createElement("input");
  wanted.type = "search";
  wanted.placeholder = "Filter: words of a row";
  wanted.setAttribute("aria-label", wanted.placeholder);
  filter = () => {
    const words = wanted.value.toLowerCase().split(/\s+/);
    const text = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
    fitting = wanted.value.trim() ? rows.filter((row) => words.every((word) => text(row).includes(word))) : rows;
  };
  wanted.addEventListener("input", () => { load(); first = 0; filter(); show(); });
  const back = press("Previous", () => { first -= size; }), on = press("Next", () => { first += size; });
  const all = press("All", () => { first = 0; size = rows.length; });
  const say = (count) => {
    const last = Math.min(first + size, count);
    told.textContent = count ? `${first + 1} to ${last} of ${count}` : "no row has these words";
    back.disabled = first === 0;
    on.disabled = last === count;
    all.disabled = size >= count;
  };
  const put = show;
  show = () => { put(); say(fitting.length); };
  bar.append(wanted, told, back, on, all);
  table.parentElement.before(bar);
  say(Number(waiting.dataset.count));
}
document.querySelectorAll("[data-sorts]").forEach((hint) => { hint.hidden = false; });
