/**
 * Data of a page: loaded once, again when the address or the server's state changes, given up when the page closes.
 *
 * `useData` asks again on change notices of the one live stream (`live.js`), at most once a second, so that a page costs
 * nothing while nothing changes. An error keeps the data that was there before beside it; after a passing one it asks
 * again (`retry.js`).
 */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { isAbort } from "./api.js";
import { onChange } from "./live.js";
import { useRetry } from "./retry.js";

const THROTTLE_MS = 800;

/**
 * @param {(signal: AbortSignal) => Promise<any>} load asks the server.
 * @param {unknown[]} inputs load again when one changes.
 * @param {import("./live.js").Topic[]} topics changes that make the data old.
 * @returns {{data: any, error: any, loading: boolean, reload: () => void}}
 */
export function useData(load, inputs, topics = []) {
  const [state, setState] = useState({ data: undefined, error: /** @type {any} */ (null), loading: true });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const reload = useCallback(() => setTurn((before) => before + 1), []);

  const isFirst = useRef(true);
  useLayoutEffect(() => {
    if (!isFirst.current) setState({ data: undefined, error: null, loading: true });
    isFirst.current = false;
  }, inputs);
  // Before the browser draws, which takes longer than to ask.
  useLayoutEffect(() => {
    const controller = new AbortController();
    latest.current(controller.signal).then(
      (data) => controller.signal.aborted || setState({ data, error: null, loading: false }),
      (error) => isAbort(error) || controller.signal.aborted || setState((before) => ({ ...before, error, loading: false })),
    );
    return () => controller.abort();
  }, [...inputs, turn]);
  useChanges(topics, reload);
  useRetry(state.error, reload);
  return { ...state, reload };
}

/** Calls `changed`, at most once in `THROTTLE_MS`, when one of the topics changes. */
export function useChanges(topics, changed) {
  const latest = useRef(changed);
  latest.current = changed;
  useEffect(() => {
    let timer = /** @type {any} */ (0);
    let last = 0;
    const notice = () => {
      if (timer) return;
      const wait = Math.max(0, last + THROTTLE_MS - Date.now());
      timer = setTimeout(() => {
        timer = 0;
        last = Date.now();
        latest.current();
      }, wait);
    };
    const stops = topics.map((topic) => onChange(topic, notice));
    return () => {
      clearTimeout(timer);
      for (const stop of stops) stop();
    };
  }, [JSON.stringify(topics)]);
}

/** Calls `tick` every `seconds` while the page is visible: for figures that no stream tells of. */
export function useInterval(tick, seconds) {
  const latest = useRef(tick);
  latest.current = tick;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || latest.current(), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}
