/**
 * Requests that got no answer are sent again: after growing pauses, and at once when the browser is online again.
 *
 * An agent that starts again, an election, and an interface that comes or goes (Chromium ends open requests then) pass by
 * themselves; a page that waited for a click would stay on its error. Refusals are answers, and are not asked for again.
 */
import { useEffect, useRef } from "../../vendor/preact.js";

const PAUSES_MS = [500, 1000, 2000, 5000, 10000, 30000];

/** Whether the same request may succeed without a change by its user: nobody answered, or nobody leads. */
export const isPassing = (error) => error?.status === 0 || /no cluster leader/i.test(error?.message ?? "");

/** Calls `retry` once: when the pause that follows `failures` failures is over, or the browser is online. @returns {() => void} gives up. */
export function afterPause(failures, retry) {
  const stop = () => {
    clearTimeout(timer);
    removeEventListener("online", run);
  };
  const run = () => {
    stop();
    retry();
  };
  const timer = setTimeout(run, PAUSES_MS[Math.min(failures, PAUSES_MS.length) - 1]);
  addEventListener("online", run);
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
