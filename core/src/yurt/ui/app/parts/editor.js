/**
 * The editor and the reading view of job files and JSON. The library is loaded with the first one, and lives in a shadow root,
 * where it can use constructed style sheets: the policy of these pages allows no `style` element.
 */
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { blocksAround, tokenizer } from "../core/hcl.js";
import { plain } from "../core/format.js";

const load = () => import("../../vendor/codemirror.js");
const READ_MAX = 2_000_000;
const CHECK_MS = 500;

const JSON_TOKENS = {
  name: "json",
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match(/^"(?:[^"\\]|\\.)*"(?=\s*:)/)) return "propertyName";
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
    if (stream.match(/^-?\d+(\.\d+)?([eE][+-]?\d+)?/)) return "number";
    if (stream.match(/^(true|false|null)/)) return "atom";
    stream.next();
    return null;
  },
};

function look(cm) {
  const { tags } = cm;
  const highlight = cm.HighlightStyle.define([
    { tag: tags.keyword, color: "var(--keyword)", fontWeight: "600" },
    { tag: tags.string, color: "var(--string)" },
    { tag: [tags.number, tags.atom, tags.bool], color: "var(--number)" },
    { tag: tags.comment, color: "var(--comment)", fontStyle: "italic" },
    { tag: tags.propertyName, color: "var(--property)" },
    { tag: tags.function(tags.variableName), color: "var(--keyword)" },
  ]);
  const theme = cm.EditorView.theme({
    "&": { backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13px", maxHeight: "70vh" },
    ".cm-scroller": { fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace', lineHeight: "1.5", overflow: "auto" },
    ".cm-gutters": { backgroundColor: "var(--code)", color: "var(--dim)", border: "none" },
    ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
    ".cm-cursor": { borderLeftColor: "var(--text)" },
    "&.cm-focused .cm-selectionBackground, .cm-selectionBackground, ::selection": { backgroundColor: "var(--accent-soft) !important" },
    ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
    ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-text)" },
    ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
    ".cm-insertedLine, .cm-changedLine": { backgroundColor: "var(--add)" },
    ".cm-deletedChunk": { backgroundColor: "var(--del)" },
  });
  return [theme, cm.syntaxHighlighting(highlight)];
}

/** Names that fit where the cursor stands, from the server's own schema of job files. */
function completions(cm, words) {
  return cm.autocompletion({
    override: [
      async (context) => {
        const word = context.matchBefore(/[\w-]*/);
        if (!word || (word.from === word.to && !context.explicit)) return null;
        const line = context.state.doc.lineAt(context.pos);
        if (line.text.slice(0, word.from - line.from).trim()) return null;
        const options = await words(blocksAround(context.state.sliceDoc(0, word.from)));
        return { from: word.from, options };
      },
    ],
  });
}

/**
 * Text typed over several lines, put in by the editor: the browser's own way joins lines with `style` attributes, which the policy
 * of these pages refuses.
 */
const typedOverLines = (cm) =>
  cm.EditorView.domEventHandlers({
    beforeinput(event, view) {
      const { from, to } = view.state.selection.main;
      if (event.inputType !== "insertText" || event.data === null || view.composing || view.state.doc.lineAt(from).to >= to) return false;
      view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
      event.preventDefault();
      return true;
    },
  });

function extensions(cm, { label, language, change, check, words }) {
  const base = [
    cm.lineNumbers(),
    cm.highlightSpecialChars(),
    cm.drawSelection(),
    cm.bracketMatching(),
    cm.foldGutter(),
    cm.indentUnit.of("  "),
    cm.StreamLanguage.define(language === "hcl" ? tokenizer : JSON_TOKENS),
    cm.highlightSelectionMatches(),
    cm.EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
    ...look(cm),
  ];
  if (!change)
    return [...base, cm.EditorState.readOnly.of(true), cm.EditorView.lineWrapping, cm.keymap.of([...cm.searchKeymap, ...cm.foldKeymap])];
  const keys = cm.keymap.of([
    ...cm.closeBracketsKeymap,
    ...cm.defaultKeymap,
    ...cm.searchKeymap,
    ...cm.historyKeymap,
    ...cm.foldKeymap,
    ...cm.completionKeymap,
    ...cm.lintKeymap,
  ]);
  return [
    ...base,
    typedOverLines(cm),
    cm.history(),
    cm.closeBrackets(),
    cm.indentOnInput(),
    cm.highlightActiveLine(),
    cm.highlightActiveLineGutter(),
    cm.EditorView.updateListener.of((update) => update.docChanged && change(update.state.doc.toString())),
    keys,
    ...(check
      ? [
          cm.lintGutter(),
          cm.linter((view) => check(view.state.doc.toString()).then((found) => marks(view.state.doc, found)), { delay: CHECK_MS }),
        ]
      : []),
    ...(words ? [completions(cm, words)] : []),
  ];
}

/** Findings as marks on the word where each begins. */
function marks(doc, found) {
  return found.map(({ line, column, message }) => {
    const at = doc.line(Math.min(Math.max(1, line), doc.lines));
    const from = Math.min(at.from + Math.max(0, column - 1), at.to);
    const word = /^[\w"-]*/.exec(doc.sliceString(from, at.to))?.[0].length || 1;
    return { from, to: Math.min(from + word, at.to), severity: "error", message };
  });
}

/**
 * @param {{text: string, change?: (text: string) => void, language: "hcl"|"json", label: string,
 *   check?: (text: string) => Promise<{line: number, column: number, message: string}[]>,
 *   words?: (blocks: string[]) => Promise<{label: string, type: string, detail?: string}[]>}} props
 */
export function Editor({ text, change, language, label, check, words }) {
  const host = useRef(/** @type {any} */ (null));
  const view = useRef(/** @type {any} */ (null));
  const latest = useRef({ change, check, words });
  latest.current = { change, check, words };
  const echoes = useRef(new Set()); // Texts told to `change` that may come back as `text` after more was typed.
  const [failure, setFailure] = useState("");
  useEffect(() => {
    let isDisposed = false;
    load().then(
      (cm) => {
        if (isDisposed) return;
        const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
        const options = {
          label,
          language,
          change:
            change &&
            ((next) => {
              echoes.current.add(next);
              latest.current.change?.(next);
            }),
          check: check && ((now) => /** @type {any} */ (latest.current).check(now)),
          words: words && ((blocks) => /** @type {any} */ (latest.current).words(blocks)),
        };
        view.current = new cm.EditorView({ doc: text, extensions: extensions(cm, options), parent: root, root });
        view.current.scrollDOM.tabIndex = 0; // long lines scroll by keys, also where the text cannot be edited
      },
      (error) => setFailure(error.message),
    );
    return () => {
      isDisposed = true;
      view.current?.destroy();
      view.current = null;
    };
  }, [language, label, Boolean(change)]);
  useEffect(() => {
    const now = view.current;
    if (!now) return;
    const isShown = now.state.doc.toString() === text;
    if (!isShown && !echoes.current.has(text)) now.dispatch({ changes: { from: 0, to: now.state.doc.length, insert: text } });
    if (isShown) echoes.current.clear();
  }, [text]);
  if (failure)
    return html`<textarea aria-label=${label} rows="24" readonly=${!change} value=${text}
      onInput=${(event) => change?.(event.target.value)}></textarea>`;
  return html`<div class="cm-host" ref=${host} data-editor=${label}></div>`;
}

/** Read only; very long texts stand as they are. */
export const CodeView = ({ text, language, label }) =>
  text.length > READ_MAX
    ? html`<pre class="code" tabindex="0" aria-label=${label}>${plain(text)}</pre>`
    : html`<${Editor} text=${text} language=${language} label=${label} />`;
