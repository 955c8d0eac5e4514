// Folded sections open when they are asked for and for printing; tables are sorted by their heads.
(() => {
  function reach() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const folds = [target.querySelector(":scope > details")];
    for (let one = target.closest("details"); one; one = one.parentElement.closest("details")) folds.push(one);
    const closed = folds.filter((one) => one && !one.open);
    closed.forEach((one) => { one.open = true; });
    if (closed.length) target.scrollIntoView();
  }
  addEventListener("hashchange", reach);
  addEventListener("DOMContentLoaded", reach);
  document.addEventListener("click", (event) => { if (event.target.closest?.('a[href^="#"]')) setTimeout(reach); });

  // What paper shows though it is folded; what else is folded is not printed.
  const PRINTED = ".more, .card details, [id$='result'] details, footer details";
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details")].filter((one) => !one.open && one.matches(PRINTED));
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => { closed.forEach((one) => { one.open = false; }); closed = []; });

  // 95.2 %, 1,234, 160.2 billion, +3 points; words come after numbers
  const WORDS = { thousand: 1e3, million: 1e6, billion: 1e9, trillion: 1e12, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, min: 60, h: 3600 };
  function value(cell) {
    const found = /^[+]?([−-]?[\d,]*\.?\d+)\s*([a-zA-Z]+)?/.exec(cell.innerText.trim());
    return found ? +found[1].replaceAll(",", "").replace("−", "-") * (WORDS[found[2]] || 1) : null;
  }

  function sort(head) {
    const table = head.closest("table"), body = table.tBodies[0], c = head.cellIndex;
    const down = head.ariaSort === "descending" ? false : head.ariaSort === "ascending" || !head.matches(".word");
    const rows = [...body.rows].map((row, i) => ({ row, i, value: value(row.cells[c]), text: row.cells[c].innerText }));
    const names = new Intl.Collator("en", { numeric: true });
    rows.sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || (down ? -1 : 1) * names.compare(a.text, b.text) || a.i - b.i;
      return (down ? -1 : 1) * (a.value - b.value) || a.i - b.i;
    });
    body.append(...rows.map(({ row }) => row));
    for (const other of head.parentElement.cells) other.ariaSort = "none";
    head.ariaSort = down ? "descending" : "ascending";
  }

  const sortable = (event) => {
    const head = event.target.closest?.("thead th");
    return head && !head.closest(".everyone") && head.closest("table") ? head : null;
  };
  function heads() {
    document.querySelectorAll(".list thead th, .matrix thead th").forEach((head) => {
      if (head.closest("table").tBodies[0].rows.length > 2) head.tabIndex = 0;
    });
  }
  document.addEventListener("click", (event) => { const head = sortable(event); if (head?.tabIndex === 0) sort(head); });
  document.addEventListener("keydown", (event) => {
    const head = (event.key === "Enter" || event.key === " ") && sortable(event);
    if (head && head.tabIndex === 0) { event.preventDefault(); sort(head); }
  });
  document.addEventListener("renewed", heads);
  heads();
})();
