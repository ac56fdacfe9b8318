/**
 * The little of Markdown that descriptions of jobs use: paragraphs, headings, lists, code, bold, italic and links. It makes
 * elements, never HTML, so that markup of a stranger is shown as text; links lead to http and https alone.
 */
import { html } from "../../vendor/preact.js";
import { plain } from "../core/format.js";

const INLINE = /(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*|\[[^\]]+\]\([^)\s]+\)|https?:\/\/[^\s<>"')]+)/g;

/** An address that may be followed, or "". */
export function safeLink(text) {
  try {
    const url = new URL(String(text));
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : "";
  } catch {
    return "";
  }
}

const Out = ({ to, label }) => (to ? html`<a href=${to} target="_blank" rel="noopener noreferrer">${plain(label)}</a>` : plain(label));

function inline(text) {
  return text.split(INLINE).map((piece) => {
    if (!piece) return "";
    if (piece.startsWith("`")) return html`<code>${plain(piece.slice(1, -1))}</code>`;
    if (piece.startsWith("**")) return html`<strong>${plain(piece.slice(2, -2))}</strong>`;
    const link = /^\[([^\]]+)\]\(([^)\s]+)\)$/.exec(piece);
    if (link) return html`<${Out} to=${safeLink(link[2])} label=${link[1]} />`;
    if (/^https?:/.test(piece)) return html`<${Out} to=${safeLink(piece)} label=${piece} />`;
    if (/^\*[^*]+\*$/.test(piece)) return html`<em>${plain(piece.slice(1, -1))}</em>`;
    return plain(piece);
  });
}

function block(text) {
  if (text.startsWith("```")) return html`<pre class="code">${plain(text.replace(/^```[^\n]*\n?|```$/g, ""))}</pre>`;
  const heading = /^#{1,6} (.*)/.exec(text);
  if (heading) return html`<h3>${inline(heading[1])}</h3>`;
  const lines = text.split("\n");
  if (lines.every((line) => /^\s*[-*] /.test(line)))
    return html`<ul>${lines.map((line) => html`<li>${inline(line.replace(/^\s*[-*] /, ""))}</li>`)}</ul>`;
  if (lines.every((line) => /^\s*\d+\. /.test(line)))
    return html`<ol>${lines.map((line) => html`<li>${inline(line.replace(/^\s*\d+\. /, ""))}</li>`)}</ol>`;
  return html`<p>${inline(text)}</p>`;
}

export const Markdown = ({ text }) => html`
  <div class="markdown">${String(text)
    .split(/(```[\s\S]*?```)|\n\s*\n/)
    .filter((part) => part?.trim())
    .map((part) => block(part.trim()))}</div>
`;
