/**
 * The lines of one or more logs, bounded: beyond `LINES_MAX` the oldest go, and how many went is told.
 *
 * Text arrives in pieces that may end anywhere; a line is complete at its newline. A style that is open at the end of a line holds
 * for the next one. Lines of several sources are interleaved in the order of their arrival.
 */
import { bare, pieces } from "./ansi.js";

export const LINES_MAX = 200000;
const LINE_MAX = 20000;

/** @typedef {{text: string, source: number, at: number, style: import("./ansi.js").Style|null, kind: string}} Line */

export class LogBuffer {
  constructor() {
    /** @type {Line[]} */
    this.lines = [];
    this.dropped = 0;
    /** @type {Map<string, {rest: string, style: import("./ansi.js").Style}>} */
    this.open = new Map();
  }

  /** Add a piece of a log. `at`: its time of arrival, 0 for existing content. */
  add(text, { source = 0, kind = "stdout", at = 0 } = {}) {
    const key = `${source} ${kind}`;
    const open = this.open.get(key) ?? { rest: "", style: {} };
    const parts = (open.rest + text).split("\n");
    open.rest = parts.pop() ?? "";
    if (open.rest.length > LINE_MAX) parts.push(open.rest.slice(0, LINE_MAX), (open.rest = ""));
    for (const part of parts) {
      const line = (part.endsWith("\r") ? part.slice(0, -1) : part).slice(0, LINE_MAX);
      const line_text = line.includes("\r") ? line.slice(line.lastIndexOf("\r") + 1) : line;
      const begins = Object.keys(open.style).length ? open.style : null;
      if (line.includes("\x1b")) open.style = pieces(line, open.style).style;
      this.lines.push({ text: line_text, source, at, style: begins, kind });
    }
    this.open.set(key, open);
    if (this.lines.length > LINES_MAX) {
      const surplus = this.lines.length - LINES_MAX + LINES_MAX / 10;
      this.lines.splice(0, surplus);
      this.dropped += surplus;
    }
  }

  /** Drop all lines. */
  clear() {
    this.lines = [];
    this.dropped = 0;
    this.open.clear();
  }
}

/** A pattern for a search text: `/…/` is a regular expression, all else is taken literally. @returns {RegExp|null} */
export function patternOf(text) {
  if (!text) return null;
  const expression = /^\/(.+)\/([i]?)$/.exec(text);
  try {
    return expression ? new RegExp(expression[1], `g${expression[2]}`) : new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  } catch {
    return null;
  }
}

/** The indices of lines that match, from index `from` on. */
export function matches(lines, pattern, from = 0) {
  const found = [];
  for (let at = from; at < lines.length; at += 1) {
    pattern.lastIndex = 0;
    if (pattern.test(bare(lines[at].text))) found.push(at);
  }
  return found;
}
