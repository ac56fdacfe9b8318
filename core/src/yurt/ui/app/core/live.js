/**
 * Live updates of a page: subscribes views at the hub, in a shared worker where the browser has one, else in the page itself.
 *
 * A view is what `/v1/yurt/watch` takes: `{Kind, Namespace, Where, Search, Filter, Parent, Job, Node, Fields}`. An update has
 * `Columns` and `Gone`, or `Overview`, or `Resync: true`, which means: read the list again.
 *
 * @typedef {Record<string, any>} Topic
 */
import { signal } from "../../vendor/preact.js";
import { region } from "./api.js";

/** The hub is made when the browser is idle, and at the latest after this time. */
const CONNECT_MS = 1000;
/** After so long the modules of the hub are asked for again, when the agent did not give them. */
const RETRY_MS = 3000;

/** "live", "paused" or "reconnecting". */
export const liveState = signal("paused");
/** @type {Map<string, (update: any) => void>} */
const listeners = new Map();
let last = 0;
/** What the hub is told once it is there. @type {import("./hub.js").Wish[]} */
const early = [];
let isRequested = false;

/** Tell the hub; the first wish has it made. @param {import("./hub.js").Wish} message */
let wish = (message) => {
  early.push(message);
  if (isRequested || message.hidden !== undefined) return;
  isRequested = true;
  if ("requestIdleCallback" in window) requestIdleCallback(keepConnecting, { timeout: CONNECT_MS });
  else setTimeout(keepConnecting, 0);
};

/** Connect, and try again where the agent is away or has other modules by now: a page without updates shows old rows. */
const keepConnecting = () =>
  connect().catch(() => {
    liveState.value = "reconnecting";
    setTimeout(keepConnecting, RETRY_MS);
  });

function receive(message) {
  if (message.state) liveState.value = message.state;
  if (message.id) listeners.get(message.id)?.(message.update);
}

/** Connect to the hub: a shared worker costs the browser a process, so first rows come before it. */
async function connect() {
  if ("SharedWorker" in window) {
    const { trustedWorkerUrl } = await import("./trusted.js");
    const worker = new SharedWorker(/** @type {any} */ (trustedWorkerUrl()), { type: "module", name: "yurt-live" });
    worker.port.onmessage = (event) => receive(event.data);
    worker.port.start();
    wish = (message) => worker.port.postMessage(message);
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
  } else {
    const { Hub } = await import("./hub.js");
    const hub = new Hub();
    hub.add("page", receive);
    wish = (message) => hub.receive("page", message);
  }
  for (const message of early.splice(0)) wish(message);
}

/** Tell the hub whether the page is in sight; called once. */
export const startLive = () => document.addEventListener("visibilitychange", () => wish({ hidden: document.hidden }));

/** Calls `listener` with each update of a view, until the returned function is called. `index`: that of the list read before. */
export function onChange(view, listener, index = 0) {
  last += 1;
  const id = String(last);
  listeners.set(id, listener);
  wish({ subscribe: id, view: region.value ? { ...view, Region: region.value } : view, index });
  return () => {
    listeners.delete(id);
    wish({ unsubscribe: id });
  };
}

/** Start again, for another session. */
export const restartLive = () => wish({ restart: true });

/** The rows of a job, as a topic for `useData`. */
export const jobTopic = (namespace, id) => ({
  Kind: "jobs",
  Namespace: namespace,
  Where: [`ID:${id}`],
  Fields: ["ID", "Namespace", "ModifyIndex", "Status", "Running"],
});
export const jobAllocsTopic = (namespace, id) => ({ Kind: "allocations", Namespace: namespace, Job: id, Fields: ["ID", "ModifyIndex"] });
export const allocTopic = (namespace, id) => ({
  Kind: "allocations",
  Namespace: namespace,
  Where: [`ID:${id}`],
  Fields: ["ID", "ModifyIndex"],
});
export const nodeTopic = (id) => ({ Kind: "nodes", Where: [`ID:${id}`], Fields: ["ID", "ModifyIndex"] });
export const nodeAllocsTopic = (id) => ({ Kind: "allocations", Namespace: "*", Node: id, Fields: ["ID", "ModifyIndex"] });
export const anyJob = () => ({ Kind: "jobs", Namespace: "*", Fields: ["ID", "Namespace", "ModifyIndex"] });
