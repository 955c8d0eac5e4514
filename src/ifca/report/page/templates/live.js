// News while a run goes on: a small question every second, and the page's content when it has changed.
(() => {
  const status = document.getElementById("live");
  const page = document.getElementById("page");
  let version = null;

  async function look() {
    try {
      const answer = await (await fetch("state", { cache: "no-store" })).json();
      if (answer.version !== version) {
        const content = await (await fetch("content", { cache: "no-store" })).text();
        const open = [...page.querySelectorAll("details")].map((one) => one.open);
        const focused = document.activeElement?.closest("section")?.id;
        page.innerHTML = content;
        page.querySelectorAll("details").forEach((one, i) => { one.open = open[i] ?? false; });
        if (focused) document.getElementById(focused)?.querySelector("[tabindex]")?.focus({ preventScroll: true });
        document.dispatchEvent(new Event("renewed"));
        version = answer.version;
        document.body.dataset.version = version;
      }
      status.textContent = answer.text;
      document.body.dataset.state = answer.state;
    } catch {
      status.textContent = "'ifca watch' has stopped: the page shows what was known then.";
      document.body.dataset.state = "gone";
    }
    setTimeout(look, 1000);
  }
  look();
})();
