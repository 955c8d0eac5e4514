// The story of one client: its clusters over time, its loss under each model, what else would serve it, who is near.
(() => {
  const { element, shown, readable, key, better, states, NEAR } = window.ifca;

  window.ifca.tell = (root, i) => {
    const { data } = states.get(root), story = root.querySelector(".story");
    const parts = [element("h3", data.ids[i]), element("p", opening(data, i))];
    if (data.moves?.[i]) parts.push(...path(data, i));
    if (data.losses?.[i]) parts.push(...losses(data, i));
    story.replaceChildren(...parts);
    if (data.losses?.[i]) story.append(near(data, i));
    story.scrollIntoView({ block: "nearest" });
  };

  function opening(data, i) {
    const said = [];
    const where = data.clustered && data.cluster[i] >= 0 ? `Served by the model of cluster ${data.cluster[i]}` : "Served by its model";
    said.push(i >= data.trained ? `${where}; it was only tested, never in training.`
      : `${where}; it has ${data.samples[i].toLocaleString("en")} training samples.`);
    if (data.score[i] !== null) {
      let text = `Its ${data.metric} is ${shown(data, data.score[i])}`;
      const others = data.others.filter((other) => other.score[i] !== null)
        .map((other) => `${shown(data, other.score[i])} with ${other.name.replace("on its own", "a model of its own")}`);
      if (others.length) text += `; it would be ${others.join(" and ")}`;
      said.push(`${text}.`);
      const scores = data.score.filter((v) => v !== null);
      const worse = scores.filter((v) => better(data, data.score[i], v)).length;
      said.push(`That is better than ${Math.round(100 * worse / Math.max(1, scores.length - 1))} % of the clients.`);
    }
    if (data.personal?.[i]) {
      said.push(data.personal[i] === "served" ? "Personalising: it stays with the model of its cluster."
        : `Personalising: it chose ${data.personal[i]}` + (data.personal_score[i] === null ? "." : `, with a ${data.metric} of ${shown(data, data.personal_score[i])}.`));
    }
    if (data.true) said.push(`Its true cluster is ${data.true[i]}.`);
    return said.join(" ");
  }

  function path(data, i) {
    const moves = data.moves[i], last = data.rounds + (data.final ? 1 : 0), strip = element("div", undefined, "strip");
    const name = (c) => data.final && c === data.rounds ? "the end" : `round ${c + 1}`;
    const told = [];
    for (let n = 0; n < moves.length; n += 2) {
      const end = n + 2 < moves.length ? moves[n + 2] : last, j = moves[n + 1];
      const piece = element("i");
      piece.style.flexGrow = end - moves[n];
      piece.style.setProperty("--key", j < 0 ? "transparent" : data.colours[j % data.colours.length]);
      piece.title = `${j < 0 ? "no cluster yet" : `cluster ${j}`} from ${name(moves[n])}`;
      strip.append(piece);
      if (j >= 0) told.push(`cluster ${j} from ${name(moves[n])}`);
    }
    const few = told.length > 6 ? ["…", ...told.slice(-5)] : told;
    strip.setAttribute("role", "img");
    strip.setAttribute("aria-label", `Clusters over the rounds: ${few.join(", ")}`);
    const text = told.length === 1 ? `In cluster ${moves[moves.length - 1]} in every round it took part in.` : `${few.join(", ")}.`;
    return [element("h4", "Its cluster over time"), strip, element("p", text, "note")];
  }

  function losses(data, i) {
    const row = data.losses[i], top = Math.max(...row.filter((v) => v !== null)) || 1, list = element("div", undefined, "ranking");
    row.forEach((value, j) => {
      if (value === null) return;
      const bar = element("div", undefined, j === data.cluster[i] ? "bar mine" : "bar");
      const track = element("span", undefined, "track"), fill = element("i");
      fill.style.width = `${100 * value / top}%`;
      fill.style.background = data.colours[j % data.colours.length];
      track.append(fill);
      bar.append(element("span", `model ${j}`, "who"), track, element("span", readable(value), "value"));
      list.append(bar);
    });
    return [element("h4", i < data.trained ? "Its training loss under each model (lower is better)" : "Its loss under each model (lower is better)"), list];
  }

  function near(data, i) {
    const logs = (row) => row.map((v) => v === null ? null : Math.log(Math.max(v, 1e-9)));
    const mine = logs(data.losses[i]);
    const found = [];
    data.losses.forEach((row, other) => {
      if (other === i || !row) return;
      let far = 0;
      logs(row).forEach((v, j) => { if (v !== null && mine[j] !== null) far += (v - mine[j]) ** 2; });
      found.push([far, other]);
    });
    found.sort((a, b) => a[0] - b[0]);
    const box = element("div"), list = element("p", undefined, "near");
    for (const [, other] of found.slice(0, NEAR)) {
      const button = element("button", data.ids[other], "client");
      button.type = "button";
      button.dataset.client = other;
      if (data.cluster[other] >= 0) button.prepend(key(data, data.cluster[other]));
      list.append(button, " ");
    }
    box.append(element("h4", "Near it: clients whose losses under the models are most alike"), list);
    return box;
  }
})();
