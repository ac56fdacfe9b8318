/**
 * Trusted Types: the policy `yurt` makes one thing, the address of the one worker. There is no policy that makes HTML, so no
 * script can turn text into markup anywhere in these pages.
 */
const WORKER = new URL("./worker.js", import.meta.url).href;

/** The worker's address, as the browser demands it. */
export function trustedWorkerUrl() {
  const types = /** @type {any} */ (window).trustedTypes;
  if (!types) return WORKER;
  const policy = types.createPolicy("yurt", {
    createScriptURL: (wanted) => {
      if (wanted !== WORKER) throw new TypeError(`not the worker of these pages: ${wanted}`);
      return wanted;
    },
  });
  return policy.createScriptURL(WORKER);
}
