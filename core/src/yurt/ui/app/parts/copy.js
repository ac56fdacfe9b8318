/** Texts to copy: ids and equivalent commands. */
import { html, useState } from "../../vendor/preact.js";
import { plain, short } from "../core/format.js";

const SHOWN_MS = 1500;

/** @param {{text: string, label?: string, name?: string}} props `name` is told for `text` where that is secret. */
export function Copy({ text, label = "Copy", name = text }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return; // Not a secure context, or refused: the text is on the page to select.
    }
    setDone(true);
    setTimeout(() => setDone(false), SHOWN_MS);
  };
  return html`<button class="quiet copy" title=${label} aria-label=${name ? `${label}: ${name}` : label}
    onClick=${copy}>${done ? "✓" : html`<i class="sheets" aria-hidden="true"></i>`}</button>`;
}

/** A short id with a button that copies the whole. */
export const Id = ({ id, href = "" }) => html`
  <span class="id" title=${id}>${href ? html`<a href=${href}>${short(id)}</a>` : short(id)}<${Copy} text=${id} label="Copy id" /></span>
`;

/** The command line that does the same. */
export const Command = ({ text }) => html`
  <div class="command"><code tabindex="0">${plain(text)}</code><${Copy} text=${text} label="Copy command" /></div>
`;
