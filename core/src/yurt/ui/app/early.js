/**
 * Sends the first requests while the modules of the page are on their way, so that answers and scripts travel side by side.
 *
 * `core/api.js` takes each answer once, by its address. Not a module: it needs none, and runs before them.
 */
(() => {
  const paths = ["/v1/yurt/session", "/v1/yurt/ui/config"];
  const isOverview = /^\/ui\/?$/.test(location.pathname) && !location.search && !location.hash;
  if (isOverview && !sessionStorage.getItem("yurt-region")) paths.push("/v1/yurt/overview?namespace=*");
  const sent = /** @type {Record<string, Promise<Response>>} */ ({});
  const headers = { Accept: "application/json", "X-Yurt-Client": "ui" };
  for (const path of paths) {
    sent[path] = fetch(path, { headers, credentials: "same-origin", cache: "no-store" });
    sent[path].catch(() => {}); // The code that uses the answer handles the error; a page that uses none ignores it.
  }
  /** @type {any} */ (window).yurtEarly = sent;
})();
