/**
 * Colours of log lines: SGR sequences become spans with classes; every other escape sequence is dropped, so that a log can
 * neither move a cursor, nor set a title, nor write to the clipboard, nor make a link.
 *
 * @typedef {{bold?: boolean, dim?: boolean, italic?: boolean, under?: boolean, strike?: boolean, front?: number, back?: number}} Style
 */

// CSI sequences, OSC and other strings up to their end, two-character escapes.
const ESCAPES = /\x1b\[([0-9;:?<=>]*)([ -/]*)([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?/g;
const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "under", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["under"], 29: ["strike"] };

/** The style after an SGR sequence. @param {Style} style @param {string} codes @returns {Style} */
export function styled(style, codes) {
  let next = { ...style };
  const numbers = codes.split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) next = {};
    else if (FLAGS[code]) next[FLAGS[code]] = true;
    else if (ENDS[code]) for (const name of ENDS[code]) delete next[name];
    else if (code >= 30 && code <= 37) next.front = code - 30;
    else if (code >= 90 && code <= 97) next.front = code - 90;
    else if (code >= 40 && code <= 47) next.back = code - 40;
    else if (code >= 100 && code <= 107) next.back = code - 100;
    else if (code === 39) delete next.front;
    else if (code === 49) delete next.back;
    else if (code === 38 || code === 48) {
      const isPalette = numbers[at + 1] === 5;
      if (isPalette && numbers[at + 2] < 16) next[code === 38 ? "front" : "back"] = numbers[at + 2] % 8;
      at += isPalette ? 2 : 4;
    }
  }
  return next;
}

/** Pieces of a line with their styles, and the style after it. @param {string} line @param {Style} start */
export function pieces(line, start = {}) {
  const found = /** @type {{text: string, style: Style}[]} */ ([]);
  let style = start;
  let from = 0;
  const add = (to) => to > from && found.push({ text: line.slice(from, to), style });
  for (const escape of line.matchAll(ESCAPES)) {
    add(escape.index);
    if (escape[3] === "m" && !/[?<=>]/.test(escape[1])) style = styled(style, escape[1] || "0");
    from = escape.index + escape[0].length;
  }
  add(line.length);
  return { found, style };
}

/** A line without its escape sequences, for searching and copying. */
export const bare = (line) => (line.includes("\x1b") ? line.replace(ESCAPES, "") : line);

/** The classes of a style. @param {Style} style */
export const classOf = (style) =>
  [
    style.bold && "a-bold",
    style.dim && "a-dim",
    style.italic && "a-italic",
    style.under && "a-under",
    style.strike && "a-strike",
    style.front !== undefined && `f-${style.front}`,
    style.back !== undefined && `b-${style.back}`,
  ]
    .filter(Boolean)
    .join(" ");
