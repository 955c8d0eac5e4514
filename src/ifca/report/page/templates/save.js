// Save a table as CSV, a figure as SVG or PNG. What is drawn is read from the page as it stands.
(() => {
  const NS = "http://www.w3.org/2000/svg", EDGE = 16;

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // A cell that a spreadsheet would take for a formula is given as text.
  const quoted = (value) => {
    const text = typeof value === "string" && /^[=+@\t]/.test(value) ? `'${value}` : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };

  window.ifca.saveRows = (rows, name) =>
    save(new Blob([rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n"], { type: "text/csv" }), name);

  function make(tag, attributes, text) {
    const made = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const clear = (colour) => colour === "transparent" || /^rgba\(.*, 0\)$/.test(colour);

  // The colour of a box: keys of dashed lines are painted by an image, whiskers by their border.
  function paint(node, style) {
    if (node.matches(".key")) return style.getPropertyValue("--key");
    return node.matches(".track > b") ? style.borderTopColor : style.backgroundColor;
  }

  // Boxes with a colour become rectangles, words become text, drawings and pictures are copied.
  function copy(node, out, origin) {
    if (node.nodeType === Node.TEXT_NODE) return words(node, out, origin);
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches("figcaption, details, .saving, .cursor")) return;
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    const place = { x: box.left - origin.left, y: box.top - origin.top, width: box.width, height: box.height };
    if (!box.width && !box.height) return;
    if (node.matches("svg")) return out.append(drawing(node, place));
    if (node.matches("img")) return out.append(make("image", { ...place, href: node.src, preserveAspectRatio: "none", style: "image-rendering:pixelated" }));
    const fill = paint(node, style);
    if (!clear(fill)) out.append(make("rect", { ...place, fill, opacity: style.opacity, rx: parseFloat(style.borderTopLeftRadius) || 0 }));
    node.childNodes.forEach((child) => copy(child, out, origin));
  }

  function words(node, out, origin) {
    const text = node.textContent.trim();
    if (!text) return;
    const range = document.createRange(), style = getComputedStyle(node.parentElement);
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    out.append(make("text", {
      x: box.left - origin.left, y: box.top - origin.top + box.height / 2, "dominant-baseline": "central", fill: style.color,
      "font-size": style.fontSize, "font-weight": style.fontWeight, "font-family": "sans-serif", textLength: box.width, lengthAdjust: "spacingAndGlyphs",
    }, text));
  }

  function drawing(svg, place) {
    const made = svg.cloneNode(true), before = svg.querySelectorAll("*");
    made.querySelectorAll("*").forEach((part, i) => {
      const style = getComputedStyle(before[i]);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "vector-effect"]) {
        part.setAttribute(name, style.getPropertyValue(name));
      }
      part.removeAttribute("class");
    });
    for (const [name, value] of Object.entries({ ...place, overflow: "visible" })) made.setAttribute(name, value);
    return made;
  }

  function whole(figure) {
    const box = figure.getBoundingClientRect();
    const bottom = Math.max(...[...figure.children].filter((one) => !one.matches("figcaption, details, .saving")).map((one) => one.getBoundingClientRect().bottom));
    const width = box.width + 2 * EDGE, height = bottom - box.top + 2 * EDGE;
    const made = make("svg", { xmlns: NS, width, height, viewBox: `${-EDGE} ${-EDGE} ${width} ${height}` });
    made.append(make("rect", { x: -EDGE, y: -EDGE, width, height, fill: getComputedStyle(document.body).backgroundColor }));
    figure.childNodes.forEach((child) => copy(child, made, box));
    return { text: new XMLSerializer().serializeToString(made), width, height };
  }

  window.ifca.figure = whole;

  async function picture(figure, name) {
    const { text, width, height } = whole(figure), image = new Image(), canvas = document.createElement("canvas");
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name));
  }

  function buttons() {
    document.querySelectorAll("figure, .scroll caption").forEach((one) => {
      if (one.querySelector(":scope > .saving") || one.closest(".everyone, .images") || (one.matches("figure") && !one.querySelector(".plot, .ranking"))) return;
      const box = document.createElement("span"), kinds = one.matches("figure") ? ["SVG", "PNG"] : ["CSV"];
      box.className = "saving";
      for (const kind of kinds) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = kind;
        button.dataset.save = kind;
        button.title = `Save as ${kind}`;
        box.append(button);
      }
      one.append(box);
    });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-save]");
    if (!button) return;
    const kind = button.dataset.save, whose = button.closest("caption")?.parentElement ?? button.closest("figure");
    const name = `${whose.closest("section")?.id || "figure"}.${kind.toLowerCase()}`;
    if (kind === "CSV") {
      const rows = [...whose.rows].map((row) => [...row.children].map((cell) => cell.innerText.trim()));
      window.ifca.saveRows(rows, name);
    } else if (kind === "SVG") save(new Blob([whole(whose).text], { type: "image/svg+xml" }), name);
    else picture(whose, name);
  });
  document.addEventListener("renewed", buttons);
  buttons();
})();
