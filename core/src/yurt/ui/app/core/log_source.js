/**
 * Where log lines come from: the log of a task through the agent that shows the page.
 *
 * One log is followed by one open request. Several are asked for what is new every `POLL_MS`, so that a page never holds more than
 * two long requests.
 */
import { isAbort, send } from "./api.js";

const TAIL_BYTES = 256 * 1024;
const POLL_MS = 1000;
const RETRY_MS = 2000;

/** @typedef {{alloc: string, task: string, label?: string}} Source */

const queryOf = (source, kind, namespace) => ({ task: source.task, type: kind, plain: true, namespace });

/** Where a whole log can be saved from. @param {Source} source */
export const logPath = (source) => `/v1/client/fs/logs/${source.alloc}`;

async function pump(response, take, signal) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return size;
    size += value.length;
    take(decoder.decode(value, { stream: true }));
    if (size % (1 << 22) < value.length) await new Promise((resolve) => setTimeout(resolve)); // Let the page draw.
  }
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve(undefined);
      },
      { once: true },
    );
  });

/**
 * Follow one log: `take(text, isNew)` gets its pieces. `whole` begins at its start, else the last part is shown.
 * @param {{source: Source, kind: string, namespace: string, whole: boolean,
 *   take: (text: string, isNew: boolean) => void, problem: (text: string) => void, signal: AbortSignal}} wanted
 */
export async function follow({ source, kind, namespace, whole, take, problem, signal }) {
  let size = 0;
  let settled = false;
  setTimeout(() => (settled = true), 400);
  const place = () => (whole || size ? { origin: "start", offset: whole ? size : 0 } : { origin: "end", offset: TAIL_BYTES });
  while (!signal.aborted) {
    try {
      const query = { ...queryOf(source, kind, namespace), ...place(), follow: true };
      const response = await send("GET", logPath(source), { query, signal });
      problem("");
      await pump(
        response,
        (text) => {
          size += text.length;
          take(text, settled);
        },
        signal,
      );
      if (!whole) return; // The task ended: everything was sent.
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      problem(/** @type {Error} */ (error).message);
      if (/** @type {any} */ (error).status) return;
    }
    await pause(RETRY_MS, signal);
    if (!whole) size = 0;
  }
}

/** Ask for what is new in a log, again and again. */
export async function poll({ source, kind, namespace, take, problem, signal }) {
  let offset = -1;
  while (!signal.aborted) {
    try {
      const place = offset < 0 ? { origin: "end", offset: TAIL_BYTES / 4 } : { origin: "start", offset };
      const response = await send("GET", logPath(source), { query: { ...queryOf(source, kind, namespace), ...place }, signal });
      const first = offset < 0;
      const size = await pump(response, (text) => take(text, !first), signal);
      offset = first ? await sizeOf(source, kind, namespace, signal) : offset + size;
      problem("");
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      problem(/** @type {Error} */ (error).message);
      if (/** @type {any} */ (error).status) return;
    }
    await pause(POLL_MS, signal);
  }
}

/** The size of a log over all its rotated files: offsets from the start count them together. */
async function sizeOf(source, kind, namespace, signal) {
  const response = await send("GET", `/v1/client/fs/ls/${source.alloc}`, { query: { path: "alloc/logs", namespace }, signal });
  const files = await response.json();
  return files.filter((file) => file.Name.startsWith(`${source.task}.${kind}.`)).reduce((sum, file) => sum + file.Size, 0);
}
