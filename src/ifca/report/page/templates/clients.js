// All clients: search, filter, sort, a page of rows at a time, and the story of one client.
(() => {
  const ROWS = 10, PRINTED = 500, NEAR = 5;
  const states = new WeakMap();

  const element = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const shown = (data, value) => value === null || value === undefined ? "–"
    : data.accuracy ? `${(100 * value).toFixed(1)} %` : readable(value);
  const better = (data, a, b) => data.accuracy ? a > b : a < b;

  function readable(value) {
    const size = Math.abs(value);
    for (const [least, word] of [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]]) {
      if (size >= least && size < 1000 * least) return `${+(value / least).toPrecision(4)} ${word}`;
    }
    if (size >= 1e4 && size < 1e6) return Math.round(value).toLocaleString("en");
    return String(+value.toPrecision(4));
  }

  function columns(data) {
    const found = [{ head: "client", word: true, of: (i) => data.ids[i] }];
    if (data.clustered) found.push({ head: "cluster", of: (i) => data.cluster[i], key: true });
    if (data.true) found.push({ head: "true cluster", of: (i) => data.true[i] });
    found.push({ head: "training samples", of: (i) => data.samples[i], whole: true });
    found.push({ head: data.metric, of: (i) => data.score[i], score: true });
    for (const other of data.others) found.push({ head: other.name, of: (i) => other.score[i], score: true });
    if (data.personal) {
      found.push({ head: "personalised to", word: true, of: (i) => data.personal[i] === "served" ? "cluster's model" : data.personal[i] });
      if (data.personal_score.some((v) => v !== null)) {
        found.push({ head: "personalised", of: (i) => data.personal_score[i], score: true });
      }
    }
    if (data.moves) found.push({ head: "moves", of: (i) => data.moves[i] ? data.moves[i].length / 2 - 1 : null, whole: true });
    return found;
  }

  const cell = (data, column, i) => {
    const value = column.of(i);
    if (value === null || value === undefined || value === "" || (column.key && value < 0)) return "–";
    return column.score ? shown(data, value) : column.whole ? value.toLocaleString("en") : String(value);
  };

  function begin(root) {
    if (states.has(root)) return;
    const data = JSON.parse(root.querySelector("script").textContent);
    const state = { data, columns: columns(data), sort: null, down: false, at: 0, rows: [], open: null };
    states.set(root, state);
    const head = element("tr");
    state.columns.forEach((column, c) => {
      const cell = element("th", undefined, column.word ? "word" : "");
      cell.scope = "col";
      const button = element("button", column.head);
      button.type = "button";
      button.dataset.column = c;
      cell.append(button);
      head.append(cell);
    });
    root.querySelector("thead").replaceChildren(head);
    const choose = root.querySelector("select.cluster");
    choose.append(new Option("all", ""));
    if (data.clustered) {
      for (const j of [...new Set(data.cluster)].sort((a, b) => a - b)) choose.append(new Option(j < 0 ? "none" : j, j));
    } else choose.parentElement.hidden = true;
    const which = root.querySelector("select.which");
    which.append(new Option("all clients", ""));
    data.others.forEach((other, o) => which.append(new Option(`worse than ${other.name}`, `other${o}`)));
    if (data.moves) which.append(new Option("changed cluster", "moved"));
    if (data.personal) which.append(new Option("personalised", "personal"));
    if (data.true && data.clustered) which.append(new Option("apart from most of their kind", "apart"));
    which.parentElement.hidden = which.options.length < 2;
    state.usual = data.true && usual(data);
    update(root, state);
  }

  function usual(data) {
    const counts = {};
    data.true.forEach((kind, i) => {
      counts[kind] ??= {};
      counts[kind][data.cluster[i]] = (counts[kind][data.cluster[i]] || 0) + 1;
    });
    return Object.fromEntries(Object.entries(counts).map(([kind, found]) =>
      [kind, +Object.keys(found).reduce((a, b) => found[a] >= found[b] ? a : b)]));
  }

  function wanted(root, { data, usual }) {
    const words = root.querySelector("input").value.trim().toLowerCase();
    const cluster = root.querySelector("select.cluster").value;
    const which = root.querySelector("select.which").value;
    const fits = (i) => {
      if (words && !data.ids[i].toLowerCase().includes(words)) return false;
      if (cluster !== "" && data.cluster[i] !== +cluster) return false;
      if (which === "moved") return (data.moves[i] || []).length > 2;
      if (which === "personal") return data.personal[i] && data.personal[i] !== "served";
      if (which === "apart") return data.cluster[i] !== usual[data.true[i]];
      if (which) {
        const other = data.others[+which.slice(5)].score[i];
        return other !== null && data.score[i] !== null && better(data, other, data.score[i]);
      }
      return true;
    };
    return data.ids.map((_, i) => i).filter(fits);
  }

  function update(root, state) {
    const { data } = state;
    state.rows = wanted(root, state);
    if (state.sort !== null) {
      const { of } = state.columns[state.sort], sign = state.down ? -1 : 1;
      const names = new Intl.Collator("en", { numeric: true });
      const known = (v) => v !== null && v !== undefined && v !== "";
      state.rows.sort((a, b) => {
        const x = of(a), y = of(b);
        if (!known(x) || !known(y)) return known(y) - known(x) || a - b;
        return sign * (typeof x === "string" ? names.compare(x, y) : x - y) || a - b;
      });
    }
    root.querySelectorAll("thead th").forEach((head, c) => {
      head.ariaSort = c !== state.sort ? "none" : state.down ? "descending" : "ascending";
    });
    state.at = 0;
    const scores = state.rows.map((i) => data.score[i]).filter((v) => v !== null).sort((a, b) => a - b);
    const middle = scores.length ? `; half have a ${data.metric} of at ${data.accuracy ? "least" : "most"} ${shown(data, (scores[scores.length >> 1] + scores[(scores.length - 1) >> 1]) / 2)}` : "";
    root.querySelector(".found").textContent =
      `${state.rows.length.toLocaleString("en")} of ${data.ids.length.toLocaleString("en")} clients${middle}`;
    draw(root, state);
  }

  function draw(root, state, at = state.at, most = ROWS) {
    const { data, rows } = state;
    root.querySelector("tbody").replaceChildren(...rows.slice(at, at + most).map((i) => {
      const row = element("tr");
      if (i === state.open) row.className = "open";
      state.columns.forEach((column, c) => {
        const made = element(c ? "td" : "th", undefined, column.word ? "word" : "");
        made.dataset.head = column.head;
        if (!c) {
          made.scope = "row";
          const button = element("button", data.ids[i], "client");
          button.type = "button";
          button.dataset.client = i;
          made.append(button);
        } else {
          if (column.key && column.of(i) >= 0) made.append(key(data, column.of(i)));
          made.append(cell(data, column, i));
        }
        row.append(made);
      });
      return row;
    }));
    const pages = root.querySelector(".pages");
    pages.hidden = rows.length <= most;
    pages.querySelector("span").textContent = `${at + 1} to ${Math.min(at + most, rows.length)} of ${rows.length.toLocaleString("en")}`;
    pages.querySelector(".back").disabled = !at;
    pages.querySelector(".next").disabled = at + most >= rows.length;
  }

  function key(data, j) {
    const made = element("i", "", "key");
    made.style.setProperty("--key", data.colours[j % data.colours.length]);
    return made;
  }

  // The story of a client is in story.js.
  const shownLoss = (value) => value === null ? "–" : readable(value);
  window.ifca = { element, shown, shownLoss, better, readable, key, states, NEAR };

  const rootOf = (event) => event.target.closest?.(".everyone");
  for (const kind of ["input", "change"]) {
    document.addEventListener(kind, (event) => { const root = rootOf(event); if (root) update(root, states.get(root)); });
  }
  document.addEventListener("click", (event) => {
    const root = rootOf(event), button = event.target.closest?.("button");
    if (!root || !button) return;
    const state = states.get(root);
    if (button.dataset.column) {
      const c = +button.dataset.column;
      state.down = state.sort === c ? !state.down : Boolean(state.columns[c].score && state.data.accuracy);
      state.sort = c;
      update(root, state);
    } else if (button.dataset.client) {
      state.open = +button.dataset.client;
      draw(root, state);
      window.ifca.tell(root, state.open);
    } else if (button.classList.contains("save")) {
      const rows = [state.columns.map((column) => column.head),
        ...state.rows.map((i) => state.columns.map((column) => column.of(i) ?? ""))];
      window.ifca.saveRows(rows, `${root.dataset.name}-clients.csv`);
    } else if (button.matches(".back, .next")) {
      state.at += button.classList.contains("next") ? ROWS : -ROWS;
      draw(root, state);
    }
  });

  const each = (then) => document.querySelectorAll(".everyone").forEach((root) => then(root, states.get(root)));
  addEventListener("beforeprint", () => each((root, state) => draw(root, state, 0, PRINTED)));
  addEventListener("afterprint", () => each((root, state) => draw(root, state)));

  const all = () => document.querySelectorAll(".everyone").forEach(begin);
  document.addEventListener("renewed", all);
  all();
})();
