/** Text with colours, as spans. */
import { html } from "../../vendor/preact.js";
import { classOf, pieces } from "../core/ansi.js";
import { plain } from "../core/format.js";

/** @param {{text: string, start?: import("../core/ansi.js").Style, mark?: RegExp|null}} props */
export function Ansi({ text, start = {}, mark = null }) {
  return pieces(text, start).found.map(({ text: piece, style }, at) => {
    const name = classOf(style);
    const shown = mark ? marked(plain(piece), mark) : plain(piece);
    return name ? html`<span key=${at} class=${name}>${shown}</span>` : shown;
  });
}

/** A text with what matches marked. @param {string} text @param {RegExp} pattern */
function marked(text, pattern) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(pattern)) {
    if (!found[0]) break;
    parts.push(text.slice(from, found.index), html`<mark>${found[0]}</mark>`);
    from = found.index + found[0].length;
  }
  parts.push(text.slice(from));
  return parts;
}
