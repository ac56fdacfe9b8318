/**
 * Where log lines come from: the logs of a job's tasks as one stream (`/v1/yurt/job/:id/logs`), so that a page holds one long request
 * whatever number of logs it shows.
 */
import { isAbort, lines, segment } from "./api.js";

const TAIL_BYTES = 256 * 1024;
const RETRY_MS = 2000;
/** Milliseconds after which received lines count as new, not as existing content. */
const SETTLED_MS = 400;
/** Characters after which the page gets a chance to draw. */
const TURN = 1 << 22;

/**
 * @typedef {{AllocID: string, AllocName: string, Task: string, Type: string}} Source
 * @typedef {{job: string, namespace: string, allocs?: string[], task?: string, kind: string, whole: boolean}} Wanted
 */

/** Where one whole log can be saved from. */
export const logPath = (alloc) => `/v1/client/fs/logs/${alloc}`;

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(undefined); }, { once: true });
  });

/** The stream of the logs wanted. @param {Wanted} wanted */
function stream({ job, namespace, allocs = [], task, kind, whole }, signal) {
  const place = whole ? { origin: "start" } : { origin: "end", tail: TAIL_BYTES };
  return lines(`/v1/yurt/job/${segment(job)}/logs`, { namespace, alloc: allocs, task, type: kind, follow: true, ...place }, signal);
}

/**
 * Follow logs until all their tasks end. A stream that breaks, or that ends with its agent, is opened again, and `begin` is called again.
 * @param {Wanted} wanted
 * @param {{begin: (sources: Source[], omitted: number) => void, take: (source: number, text: string, isNew: boolean) => void,
 *   problem: (text: string) => void, signal: AbortSignal}} listener
 */
export async function follow(wanted, { begin, take, problem, signal }) {
  while (!signal.aborted) {
    const started = Date.now();
    let size = 0;
    let isEndOfAgent = false;
    try {
      for await (const line of stream(wanted, signal)) {
        if (line.Sources) begin(line.Sources, line.Omitted);
        if (line.Error) problem(line.Error);
        if (line.Ended) isEndOfAgent = true;
        if (!line.Text) continue;
        take(line.Source, line.Text, Date.now() - started > SETTLED_MS);
        size += line.Text.length;
        if (size > TURN) {
          size = 0;
          await new Promise((resolve) => setTimeout(resolve));
        }
      }
      if (!isEndOfAgent) return;
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      problem(/** @type {Error} */ (error).message);
      if (/** @type {any} */ (error).status) return;
    }
    await pause(RETRY_MS, signal);
  }
}
