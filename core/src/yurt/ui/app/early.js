/**
 * Stands in the page itself and runs before its files: asks for the first data, and loads the page again if a file did not come.
 *
 * Answers and scripts travel side by side; `core/api.js` takes each answer once, by its address. Chromium ends open requests when an
 * interface of the machine comes or goes, those for the modules too, and then nothing else runs that could ask again. Not a module: it
 * needs none.
 */
(() => {
  const RELOADS = "yurt-reloads";
  const PAUSES_MS = [500, 2000, 5000];
  const GIVEN_UP = "A script or the style of this page could not be loaded. Load the page again; the log of the agent may say more.";
  const ask = (/** @type {string} */ path) =>
    fetch(path, { headers: { Accept: "application/json", "X-Yurt-Client": "ui" }, credentials: "same-origin", cache: "no-store" });

  const paths = ["/v1/yurt/session", "/v1/yurt/ui/config"];
  const isOverview = /^\/ui\/?$/.test(location.pathname) && !location.search && !location.hash;
  if (isOverview && !sessionStorage.getItem("yurt-region")) paths.push("/v1/yurt/overview?namespace=*");
  const sent = /** @type {Record<string, Promise<Response>>} */ ({});
  for (const path of paths) {
    sent[path] = ask(path);
    sent[path].catch(() => {}); // The code that uses the answer handles the error; a page that uses none ignores it.
  }
  /** @type {any} */ (window).yurtEarly = sent;

  const reloads = () => Number(sessionStorage.getItem(RELOADS) ?? 0);
  let isBroken = false;

  /** Load the page again once the agent answers: a browser's own page of errors would not come back. */
  async function reload() {
    const pause = PAUSES_MS[Math.min(reloads(), PAUSES_MS.length - 1)];
    for (;;) {
      await new Promise((done) => setTimeout(done, pause * (0.5 + 0.5 * Math.random())));
      if (await ask("/v1/regions").catch(() => null)) break;
    }
    sessionStorage.setItem(RELOADS, String(reloads() + 1));
    location.reload();
  }

  const whenBroken = (/** @type {Event} */ event) => {
    const from = event.target;
    const isNeeded = from instanceof HTMLScriptElement || (from instanceof HTMLLinkElement && from.rel === "stylesheet");
    if (!isNeeded || isBroken) return;
    isBroken = true;
    const text = document.querySelector("#app > .loading");
    if (reloads() < PAUSES_MS.length) reload();
    else if (text) text.textContent = GIVEN_UP;
  };
  addEventListener("error", whenBroken, true); // Events of elements do not bubble; they can be captured.
  addEventListener("load", () => isBroken || sessionStorage.removeItem(RELOADS));
})();
