/** One modal dialog at a time: the browser's own `dialog`, which keeps the focus inside and closes on Escape. */
import { html, signal, useEffect, useRef } from "../../vendor/preact.js";

/** What gets the focus when a dialog opens: the first input, else the action. */
const FIRST = ".palette input, form input, form select, form textarea, [type=submit]";
/** @type {import("../../vendor/preact.js").Signal<{title: string, body: any, wide?: boolean}|null>} */
const shown = signal(null);

/** Shows a dialog; `body` is a component that gets `close`. */
export const openDialog = (title, body, { wide = false } = {}) => (shown.value = { title, body, wide });
export const closeDialog = () => (shown.value = null);

export function Dialogs() {
  const element = useRef(/** @type {any} */ (null));
  const dialog = shown.value;
  useEffect(() => {
    if (dialog && !element.current.open) element.current.showModal();
    if (dialog) element.current.querySelector(FIRST)?.focus();
    if (!dialog && element.current.open) element.current.close();
  }, [dialog]);
  return html`
    <dialog ref=${element} class=${dialog?.wide ? "wide" : ""} aria-label=${dialog?.title ?? "Dialog"} onClose=${closeDialog}>
      ${
        dialog &&
        html`
        <header>
          <h2>${dialog.title}</h2>
          <button class="quiet" aria-label="Close" onClick=${closeDialog}>✕</button>
        </header>
        <${dialog.body} close=${closeDialog} />
      `
      }
    </dialog>
  `;
}
