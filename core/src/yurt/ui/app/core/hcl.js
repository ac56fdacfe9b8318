/**
 * The words of a job file for highlighting, completion, and numbers that a suggestion changes. Parsing is the server's: what is
 * wrong is told by `/v1/jobs/parse` with its line and column.
 */

/** Reads one token of HCL; a tokenizer for a stream of characters. */
export const tokenizer = {
  name: "hcl",
  startState: () => ({ heredoc: "", comment: false }),
  token(stream, state) {
    if (state.comment) {
      if (stream.match(/^.*?\*\//)) state.comment = false;
      else stream.skipToEnd();
      return "comment";
    }
    if (state.heredoc) {
      if (stream.sol() && stream.match(new RegExp(`^\\s*${state.heredoc}\\s*$`))) state.heredoc = "";
      else stream.skipToEnd();
      return "string";
    }
    if (stream.eatSpace()) return null;
    if (stream.match(/^(#|\/\/)/)) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match("/*")) {
      state.comment = true;
      return "comment";
    }
    const heredoc = stream.match(/^<<[-~]?([A-Za-z_]\w*)/);
    if (heredoc) {
      state.heredoc = heredoc[1];
      return "string";
    }
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
    if (stream.match(/^-?\d+(\.\d+)?/)) return "number";
    if (stream.match(/^(true|false|null|for|in|if|else)\b/)) return "atom";
    if (stream.match(/^[A-Za-z_][\w-]*(?=\s*=[^=])/)) return "propertyName";
    if (stream.match(/^[A-Za-z_][\w-]*(?=\s*("[^"]*"\s*)*\{)/)) return "keyword";
    if (stream.match(/^[A-Za-z_][\w-]*(?=\()/)) return "variableName.function";
    if (stream.match(/^[A-Za-z_][\w.-]*/)) return "variableName";
    stream.next();
    return null;
  },
  languageData: { commentTokens: { line: "#", block: { open: "/*", close: "*/" } }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
};

/** The names of the blocks around a place in a job file, outermost first; a rough reading that suffices for completion. */
export function blocksAround(text) {
  const stack = /** @type {string[]} */ ([]);
  const cleaned = text.replace(/#[^\n]*|\/\/[^\n]*|\/\*[\s\S]*?\*\//g, "");
  for (const [token] of cleaned.matchAll(/[A-Za-z_][\w-]*(?:\s+"[^"\n]*")*\s*=?\s*\{|"(?:[^"\\\n]|\\.)*"|[{}]/g)) {
    if (token === "}") stack.pop();
    else if (token.endsWith("{")) stack.push(/^[A-Za-z_][\w-]*/.exec(token)?.[0] ?? "");
  }
  return stack;
}

/** Findings of the server in a text: `input.hcl:3:5: what: detail`. @returns {{line: number, column: number, message: string}[]} */
export function findings(text) {
  return [...text.matchAll(/(?:^|\s)[\w.-]+:(\d+):(\d+): ([^\n]+)/g)].map(([, line, column, message]) => ({
    line: Number(line),
    column: Number(column),
    message,
  }));
}

const KEYS = { memory: ["memory"], cpu: ["cpu"], cores: ["cores"], disk: ["size"], memory_max: ["memory_max"], count: ["count"] };

/** From where to where the block `head` reaches, or null. @param {RegExp} head */
function extent(text, head, from = 0, to = text.length) {
  const found = head.exec(text.slice(from, to));
  if (!found) return null;
  let depth = 0;
  const start = from + found.index;
  for (let at = start + found[0].length - 1; at < to; at += 1) {
    if (text[at] === "{") depth += 1;
    if (text[at] === "}" && --depth === 0) return { start, end: at + 1 };
  }
  return null;
}

const FIELDS = { memory: "MemoryMB", cpu: "CPU", cores: "Cores", memory_max: "MemoryMaxMB" };

/** A job as JSON with suggested changes of numbers applied, as `withEdits`. */
export function withJsonEdits(source, group, edits) {
  const body = JSON.parse(source);
  const found = ((body.Job ?? body).TaskGroups ?? []).find((each) => each.Name === group);
  const left = [];
  for (const edit of edits) {
    const resources = (found?.Tasks ?? []).find((task) => task.Name === edit.Task)?.Resources;
    const field = FIELDS[edit.Kind];
    if (resources && field && resources[field] === edit.Before) resources[field] = edit.After;
    else left.push(edit.Text);
  }
  return { text: JSON.stringify(body, null, 2), left };
}

const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/**
 * A job file with suggested changes of numbers applied; what could not be found is returned as texts.
 * @param {{Kind: string, Task: string, Before: number, After: number, Text: string}[]} edits
 */
export function withEdits(source, group, edits) {
  let text = source;
  const left = [];
  for (const edit of edits) {
    const around = extent(text, new RegExp(`group\\s+"?${escaped(group)}"?\\s*\\{`)) ?? { start: 0, end: text.length };
    const inside = edit.Task ? extent(text, new RegExp(`task\\s+"?${escaped(edit.Task)}"?\\s*\\{`), around.start, around.end) : around;
    const key = KEYS[edit.Kind]?.find(
      (name) => inside && new RegExp(`\\b${name}\\s*=\\s*${edit.Before}\\b`).test(text.slice(inside.start, inside.end)),
    );
    if (!inside || !key) {
      left.push(edit.Text);
      continue;
    }
    const changed = text.slice(inside.start, inside.end).replace(new RegExp(`(\\b${key}\\s*=\\s*)${edit.Before}\\b`), `$1${edit.After}`);
    text = text.slice(0, inside.start) + changed + text.slice(inside.end);
  }
  return { text, left };
}
