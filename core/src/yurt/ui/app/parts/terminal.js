/**
 * A terminal in a task. xterm writes its colours into `style` elements, which the policy of these pages forbids; here they go
 * into constructed style sheets instead. It makes no links, and escape sequences cannot reach the clipboard or the title.
 */
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { openExec } from "../core/exec.js";
import { command, plain } from "../core/format.js";
import { guard } from "../core/router.js";
import { choose, settings } from "../core/settings.js";
import { Command } from "./copy.js";
import { ask } from "./action.js";
import { Status } from "./status.js";

/** Shells, which may be started once more: any other command might do twice what it was to do once. */
const SHELL = /^(.*\/)?(a|ba|da|fi|k|z)?sh$/;
/** Before each new attempt after a connection broke. */
const PAUSES_MS = [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000];
const DARK = { background: "#101416", foreground: "#e3e9eb", cursor: "#5fc9c3", selectionBackground: "#345" };

/** Run `make` while `style` elements that it creates write into sheets of the document. @returns {() => void} removes the sheets. */
export function withSheets(make) {
  const create = document.createElement;
  const sheets = /** @type {CSSStyleSheet[]} */ ([]);
  document.createElement = /** @type {any} */ (
    function (name, options) {
      if (String(name).toLowerCase() !== "style") return create.call(document, name, options);
      const element = create.call(document, "template");
      const sheet = new CSSStyleSheet();
      sheets.push(sheet);
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text), get: () => "" });
      Object.defineProperty(element, "sheet", { value: sheet });
      return element;
    }
  );
  try {
    make();
  } finally {
    document.createElement = create;
  }
  return () => (document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet)));
}

function addStyles() {
  if (document.getElementById("xterm-css")) return;
  const link = document.createElement("link");
  Object.assign(link, { id: "xterm-css", rel: "stylesheet", href: new URL("../../vendor/xterm.css", import.meta.url).href });
  document.head.append(link);
}

/** Several lines that are pasted may be several commands: ask. */
function confirmPaste(text, write) {
  ask({
    label: "Paste",
    question: `Pastes ${text.trimEnd().split("\n").length} lines into the terminal; each line may run as a command.`,
    command: text,
    run: async () => write(text),
    done: "Pasted",
  });
}

/** An empty terminal in an element, and what removes it. */
async function makeTerminal(host) {
  const { Terminal, FitAddon } = await import("../../vendor/xterm.js");
  addStyles();
  const terminal = new Terminal({
    theme: DARK,
    fontSize: 13,
    scrollback: 5000,
    screenReaderMode: true,
    linkHandler: null,
    allowProposedApi: false,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  const removeSheets = withSheets(() => terminal.open(host));
  const size = new ResizeObserver(() => fit.fit());
  size.observe(host);
  const remove = () => {
    size.disconnect();
    terminal.dispose();
    removeSheets();
  };
  return { terminal, fit, remove };
}

/**
 * Runs a command in a terminal. A connection to a shell that breaks is opened again, at most `PAUSES_MS.length` times in a row: the
 * shell ended with its connection, so a new one starts below its output, and the terminal says so.
 */
async function open(host, { alloc, task, words, namespace, ended, onState }) {
  const { terminal, fit, remove } = await makeTerminal(host);
  let socket = /** @type {any} */ (null);
  let timer = /** @type {any} */ (0);
  let broken = 0;
  const end = (code, problem, isBroken) => {
    const pause = PAUSES_MS[broken];
    const isShell = words.length === 1 && SHELL.test(words[0]);
    if (isShell && (isBroken || (broken && code < 0 && problem)) && pause !== undefined) {
      if (!broken) terminal.write("\r\n\x1b[33m-- the connection broke --\x1b[0m\r\n");
      broken += 1;
      onState("reconnecting");
      timer = setTimeout(connect, pause);
      return;
    }
    guard.question = null;
    ended(code, problem);
  };
  const connect = () => {
    socket = openExec({
      path: `/v1/client/allocation/${alloc}/exec`,
      query: { task, command: JSON.stringify(words), tty: true, namespace },
      opened: () => {
        onState("running");
        if (broken) terminal.write("\x1b[33m-- connected again; the command starts again --\x1b[0m\r\n");
        fit.fit();
        socket.resize(terminal.cols, terminal.rows);
        terminal.focus();
      },
      output: (text) => {
        broken = 0;
        terminal.write(text);
      },
      ended: (code, problem, isBroken) => end(code, problem, isBroken),
    });
  };
  terminal.onData((text) => socket.write(text));
  terminal.onResize(({ cols, rows }) => socket.resize(cols, rows));
  host.addEventListener(
    "paste",
    (event) => {
      const text = event.clipboardData?.getData("text/plain") ?? "";
      if (!text.trimEnd().includes("\n")) return;
      event.stopPropagation();
      event.preventDefault();
      confirmPaste(text, socket.write);
    },
    { capture: true },
  );
  guard.question = "A command runs in the terminal. Leave, and end it?";
  connect();
  return () => {
    guard.question = null;
    clearTimeout(timer);
    socket.close();
    remove();
  };
}

/** Splits a command line into words: quotes group, a backslash takes the next character as it is. */
export function wordsOf(text) {
  return [...text.matchAll(/(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/g)].map(([word]) =>
    word.replace(
      /\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'/g,
      (_, char, double, single) => char ?? (double !== undefined ? double.replace(/\\(.)/g, "$1") : single),
    ),
  );
}

/** @param {{alloc: any, task: string, running: boolean}} props */
export function Exec({ alloc, task, running }) {
  const host = useRef(/** @type {any} */ (null));
  const [line, setLine] = useState(settings.value.execCommand);
  const [run, setRun] = useState(0);
  const [state, setState] = useState({ word: "", note: "" });
  useEffect(() => {
    if (!run) return undefined;
    let close = () => {};
    let isDisposed = false;
    setState({ word: "running", note: "" });
    const ended = (code, problem) =>
      isDisposed || setState({ word: problem || code ? "failed" : "complete", note: problem || `exit code ${code}` });
    const onState = (word) => isDisposed || setState({ word, note: "" });
    open(host.current, { alloc: alloc.ID, task, words: wordsOf(line), namespace: alloc.Namespace, ended, onState }).then(
      (made) => (isDisposed ? made() : (close = made)),
      (error) => setState({ word: "failed", note: error.message }),
    );
    const leave = (event) => guard.question && event.preventDefault();
    addEventListener("beforeunload", leave);
    return () => {
      isDisposed = true;
      close();
      removeEventListener("beforeunload", leave);
      host.current?.replaceChildren();
    };
  }, [run]);
  const start = (event) => {
    event.preventDefault();
    choose({ execCommand: line });
    setRun((before) => before + 1);
  };
  return html`
    <form class="filters" onSubmit=${start}>
      <input aria-label="Command to run" value=${line} onInput=${(event) => setLine(event.target.value)} spellcheck="false" required />
      <button class="primary" type="submit" disabled=${!running}>${run ? "Run again" : "Run"}</button>
      ${state.word && html`<${Status} status=${state.word} /> <span class="dim">${plain(state.note)}</span>`}
      ${!running && html`<span class="dim">The task does not run.</span>`}
    </form>
    <div class="terminal-host" ref=${host} data-terminal></div>
    <${Command} text=${command(["alloc", "exec"], { i: true, t: true, task }, [alloc.ID, ...wordsOf(line)])} />
  `;
}
