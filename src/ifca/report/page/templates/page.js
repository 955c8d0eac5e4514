"use strict";
// A read-out on charts: follows the mouse or finger; with the keyboard, left and right.
(() => {
  const readout = document.getElementById("readout");
  let shown = null;

  function hide() {
    readout.hidden = true;
    if (shown) shown.cursor.remove();
    shown = null;
  }

  function show(plot, index) {
    const chart = JSON.parse(plot.dataset.chart);
    const i = Math.max(0, Math.min(chart.x.length - 1, index));
    if (!shown || shown.plot !== plot) {
      hide();
      const cursor = document.createElement("i");
      cursor.className = "cursor";
      plot.querySelector(".canvas").append(cursor);
      shown = { plot, cursor };
    }
    shown.index = i;
    shown.cursor.style.left = `${100 * chart.at[i]}%`;
    readout.replaceChildren(line("b", `round ${chart.x[i]}`));
    for (const one of chart.series) {
      const row = document.createElement("div");
      const key = line("i", "");
      key.className = "key";
      key.style.setProperty("--key", one.colour);
      row.append(key, line("span", one.name), line("span", one.text[i]));
      readout.append(row);
    }
    readout.hidden = false;
    const box = plot.querySelector(".canvas").getBoundingClientRect();
    const at = box.left + box.width * chart.at[i];
    const wide = readout.offsetWidth;
    const left = at + 12 + wide > document.documentElement.clientWidth ? at - 12 - wide : at + 12;
    readout.style.left = `${Math.max(4, left) + scrollX}px`;
    readout.style.top = `${box.top + scrollY + 8}px`;
  }

  function line(tag, text) {
    const element = document.createElement(tag);
    element.textContent = text;
    return element;
  }

  function nearest(plot, x) {
    const box = plot.querySelector(".canvas").getBoundingClientRect();
    const share = (x - box.left) / box.width;
    const at = JSON.parse(plot.dataset.chart).at;
    let best = 0;
    at.forEach((place, i) => { if (Math.abs(place - share) < Math.abs(at[best] - share)) best = i; });
    return best;
  }

  const plotOf = (event) => event.target.closest?.("[data-chart]");
  addEventListener("pointermove", (event) => {
    const plot = plotOf(event);
    if (plot) show(plot, nearest(plot, event.clientX));
    else if (shown && document.activeElement !== shown.plot) hide();
  });
  addEventListener("keydown", (event) => {
    const plot = plotOf(event);
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
    if (event.key === "Escape") hide();
    if (!plot || !(event.key in steps)) return;
    event.preventDefault();
    const last = JSON.parse(plot.dataset.chart).x.length - 1;
    const from = shown && shown.plot === plot ? shown.index : event.key === "ArrowLeft" ? last + 1 : -1;
    show(plot, from + steps[event.key]);
  });
  addEventListener("focusout", hide);
  addEventListener("resize", hide);
})();
