/** The time that ages are counted from; moves on while the page is visible. */
import { signal } from "../../vendor/preact.js";

const STEP_MS = 5000;
export const now = signal(Date.now());

export function startClock() {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, STEP_MS);
}
