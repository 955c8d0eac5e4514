// A read-out on pictures of clients: which client, and its cluster in a round or its loss under a model.
(() => {
  const readout = document.getElementById("readout");
  let shown = false;

  function told(plot, down, across) {
    const root = plot.closest("article")?.querySelector(".everyone"), data = root && window.ifca.states.get(root)?.data;
    if (!data) return null;
    const map = JSON.parse(plot.dataset.map);
    const i = map.rows[Math.min(map.rows.length - 1, Math.floor(down * map.rows.length))];
    const c = map.columns[Math.min(map.columns.length - 1, Math.floor(across * map.columns.length))];
    if (map.of === "losses") return data.losses && [data.ids[i], `model ${c}: loss ${window.ifca.shownLoss(data.losses[i][c])}`];
    const moves = data.moves[i];
    let j = moves[1];
    for (let n = 0; n < moves.length && moves[n] <= c; n += 2) j = moves[n + 1];
    const when = data.final && c === data.rounds ? "at the end" : `round ${c + 1}`;
    return [data.ids[i], j < 0 ? `${when}: no cluster yet` : `${when}: cluster ${j}`];
  }

  addEventListener("pointermove", (event) => {
    const canvas = event.target.closest?.("[data-map] .canvas");
    const box = canvas?.getBoundingClientRect();
    const lines = canvas && told(canvas.closest("[data-map]"), (event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width);
    if (!lines) {
      if (shown) readout.hidden = true;
      shown = false;
      return;
    }
    readout.replaceChildren(window.ifca.element("b", lines[0]), window.ifca.element("span", lines[1]));
    readout.hidden = false;
    shown = true;
    const left = event.clientX + 14 + readout.offsetWidth > document.documentElement.clientWidth ? event.clientX - 14 - readout.offsetWidth : event.clientX + 14;
    readout.style.left = `${Math.max(4, left) + scrollX}px`;
    readout.style.top = `${event.clientY + scrollY + 14}px`;
  });
})();
