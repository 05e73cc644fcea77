// Makes the columns of every table.sortable sortable; without it the table stands sorted by result.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const compare = (a, b) =>
      a !== "" && b !== "" && !isNaN(a) && !isNaN(b) ? a - b : a.localeCompare(b, "en", { numeric: true });
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Results begin with the highest, names and texts with the first; a second click turns round.
      const figures = column > 0 && head.classList.contains("num");
      const sorted = head.getAttribute("aria-sort");
      const falls = sorted ? sorted === "ascending" : figures;
      const rows = [...body.rows].sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        if (a === "" || b === "") return (a === "") - (b === "");  // what has no value stays last
        return falls ? compare(b, a) : compare(a, b);
      });
      table.querySelectorAll("thead th").forEach((any) => any.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
document.querySelectorAll("[data-sorts]").forEach((hint) => { hint.hidden = false; });
