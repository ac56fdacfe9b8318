/**
 * Requests that got no answer are sent again: after growing pauses, and soon when the browser is online again.
 *
 * An agent that starts again, an election, and an interface that comes or goes (Chromium ends open requests then) pass by
 * themselves; a page that waited for a click would stay on its error. Refusals are answers, and are not asked for again.
 */
import { useEffect, useRef } from "../../vendor/preact.js";

const PAUSES_MS = [500, 1000, 2000, 5000, 10000, 30000];

/** Whether the same request may succeed without a change by its user: nobody answered, or nobody leads. */
export const isPassing = (error) => error?.status === 0 || /no cluster leader/i.test(error?.message ?? "");

/** From this part of a pause to all of it, so that the pages of a cluster do not ask its new leader at the same moment. */
const SHORTEST = 0.5;
/** Requests that wait for the browser to be online are spread over this time. */
const ONLINE_MS = 1000;

/**
 * Calls `retry` once: when the pause that follows `failures` failures is over, or soon after the browser is online. A page
 * out of sight asks when it is seen again, since nobody waits for it. @returns {() => void} gives up.
 */
export function afterPause(failures, retry) {
  const stop = () => {
    clearTimeout(timer);
    removeEventListener("online", soon);
    document.removeEventListener("visibilitychange", seen);
  };
  const run = () => {
    if (document.hidden) return document.addEventListener("visibilitychange", seen);
    stop();
    retry();
  };
  const seen = () => document.hidden || run();
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(run, Math.random() * ONLINE_MS);
  };
  const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length) - 1];
  let timer = setTimeout(run, pause * (SHORTEST + (1 - SHORTEST) * Math.random()));
  addEventListener("online", soon);
  return stop;
}

/** Calls `retry` for as long as each attempt ends with a new passing `error`; null or undefined after one that succeeded. */
export function useRetry(error, retry) {
  const failures = useRef(0);
  useEffect(() => {
    if (!isPassing(error)) {
      failures.current = 0;
      return undefined;
    }
    failures.current += 1;
    return afterPause(failures.current, retry);
  }, [error]);
}
