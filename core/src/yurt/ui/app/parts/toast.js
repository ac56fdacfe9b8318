/** Short notices of what an action did. Failures stay until they are closed; the rest goes after some seconds. */
import { html, signal } from "../../vendor/preact.js";
import { plain } from "../core/format.js";

const SHOWN_MS = 6000;
const NOTICES_MAX = 5;
/** @type {import("../../vendor/preact.js").Signal<{id: number, text: string, kind: string, href?: string}[]>} */
const notices = signal([]);
let last = 0;

const close = (id) => (notices.value = notices.value.filter((notice) => notice.id !== id));

/** @param {string} text @param {"good"|"bad"} kind @param {string} [href] where it leads. */
export function toast(text, kind = "good", href) {
  last += 1;
  const id = last;
  notices.value = [...notices.value, { id, text, kind, href }].slice(-NOTICES_MAX);
  if (kind !== "bad") setTimeout(() => close(id), SHOWN_MS);
}

export const Toasts = () => html`
  <div class="toasts" role="status" aria-live="polite">
    ${notices.value.map(
      (notice) => html`
        <div key=${notice.id} class=${`toast ${notice.kind}`}>
          <span>${notice.href ? html`<a href=${notice.href}>${plain(notice.text)}</a>` : plain(notice.text)}</span>
          <button class="quiet" aria-label="Close notice" onClick=${() => close(notice.id)}>✕</button>
        </div>
      `,
    )}
  </div>
`;
