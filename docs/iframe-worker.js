// Search on a site that is opened as files. Browsers start no worker from file://, so its script runs in a hidden
// frame instead. mkdocs-material's plugin "offline" takes this in place of a script from elsewhere ("iframe-worker").
if (location.protocol === "file:") {
  const inside = `
    self.postMessage = data => parent.postMessage(data, "*");
    self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(done => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = done;
      document.body.appendChild(script);
    })), Promise.resolve());`;

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const page = this.frame.contentDocument;
      page.open();
      page.write(`<html><body><script>${inside}<\/script><script src="${url}"><\/script></body></html>`);
      page.close();
      this.ready = new Promise(done => { this.frame.onload = done; });
      window.addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return;
        const told = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
