/**
 * The log workbench: one log followed, or several merged; search and filter, colours, wrap, head or tail, download.
 *
 * Only the lines in sight are in the document, so that 200,000 lines scroll. It follows while the reader is at the end.
 */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { url } from "../core/api.js";
import { command, count, isoTime, plain } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { LINES_MAX, LogBuffer, matches, patternOf } from "../core/log_buffer.js";
import { follow, logPath } from "../core/log_source.js";
import { query, setQuery } from "../core/router.js";
import { choose, settings } from "../core/settings.js";
import { Ansi } from "./ansi.js";
import { Command } from "./copy.js";

const LINE = 18;
const BEYOND = 20;
const WRAPPED_MAX = 500;
const KINDS = ["stdout", "stderr", "both"];

/** Reads the logs into a buffer; `version` changes with it. */
function useLines(wanted, live) {
  const buffer = useRef(new LogBuffer());
  const [version, setVersion] = useState(0);
  const [problem, setProblem] = useState("");
  const [found, setFound] = useState(/** @type {{sources: any[], omitted: number}} */ ({ sources: [], omitted: 0 }));
  useEffect(() => {
    if (!live) return undefined;
    const controller = new AbortController();
    let frame = 0;
    let sources = /** @type {any[]} */ ([]);
    const changed = () => {
      frame ||= requestAnimationFrame(() => { frame = 0; setVersion((before) => before + 1); });
    };
    const begin = (named, omitted) => {
      buffer.current = new LogBuffer();
      sources = named;
      setProblem("");
      setFound({ sources, omitted });
      changed();
    };
    const take = (source, text, isNew) => {
      buffer.current.add(text, { source, kind: sources[source].Type, at: isNew ? Date.now() : 0 });
      changed();
    };
    follow(wanted, { begin, take, problem: setProblem, signal: controller.signal });
    return () => { controller.abort(); cancelAnimationFrame(frame); };
  }, [JSON.stringify(wanted), live]);
  return { buffer: buffer.current, version, problem, ...found };
}

/** The name of each source, where there are several tasks: `web.app[0] server`; else "" for all. */
function labelsOf(sources) {
  const name = (source) => `${source.AllocName.replace(/^.*\./, "")} ${source.Task}`;
  return new Set(sources.map(name)).size > 1 ? sources.map(name) : sources.map(() => "");
}

/** The indices of the lines shown: all, or those that match. */
function useFound(buffer, version, text, only) {
  const pattern = useMemo(() => patternOf(text), [text]);
  const hits = useMemo(() => (pattern ? matches(buffer.lines, pattern) : []), [version, pattern, buffer]);
  return { pattern, hits, shown: pattern && only ? hits : null };
}

function Line({ line, pattern, labels, times, hit }) {
  return html`
    <div class=${`log-line ${hit ? "hit" : ""} ${line.kind === "stderr" ? "err" : ""}`}>
      ${times && html`<span class="dim">${line.at ? isoTime(new Date(line.at)).slice(11, 19) : "        "} </span>`}
      ${labels[line.source] && html`<span class=${`f-${(line.source % 6) + 1}`}>${plain(labels[line.source])} </span>`}
      <${Ansi} text=${line.text} start=${line.style ?? {}} mark=${pattern} /></div>
  `;
}

/** The lines in sight; at the end it stays at the end. */
function Lines({ buffer, version, found, labels, times, wrap, jump }) {
  const box = useRef(/** @type {any} */ (null));
  const [top, setTop] = useState(0);
  const atEnd = useRef(true);
  const total = found.shown ? found.shown.length : buffer.lines.length;
  const height = box.current?.clientHeight ?? 600;
  const wrapped = wrap ? Math.max(0, total - WRAPPED_MAX) : 0;
  const first = wrap ? wrapped : Math.max(0, Math.floor(top / LINE) - BEYOND);
  const last = wrap ? total : Math.min(total, Math.ceil((top + height) / LINE) + BEYOND);
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [version, total, wrap]);
  useEffect(() => {
    if (jump === null || !box.current) return;
    atEnd.current = false;
    box.current.scrollTop = Math.max(0, jump * LINE - height / 2);
  }, [jump]);
  const scrolled = () => {
    if (!box.current) return; // The page has been left.
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    atEnd.current = scrollHeight - scrollTop - clientHeight < LINE * 2;
    setTop(scrollTop);
  };
  const indices = Array.from({ length: Math.max(0, last - first) }, (_, at) => (found.shown ? found.shown[first + at] : first + at));
  const current = jump !== null && found.hits.includes(jump) ? jump : -1;
  const selectAll = (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "a") return;
    event.preventDefault();
    getSelection()?.selectAllChildren(box.current);
  };
  return html`
    <div class=${`log ${wrap ? "wrapped" : ""}`} ref=${box} tabindex="0" role="log" aria-label="Log" aria-live="off" onScroll=${scrolled}
      onKeyDown=${selectAll}>
      ${wrap && wrapped > 0 && html`<div class="dim">The last ${WRAPPED_MAX} lines; without wrapping all are shown.</div>`}
      <div style=${wrap ? {} : { height: `${total * LINE}px` }}><div style=${wrap ? {} : { transform: `translateY(${first * LINE}px)` }}>
        ${indices.map(
          (index) => html`
          <${Line} key=${index} line=${buffer.lines[index]} pattern=${found.pattern} labels=${labels} times=${times}
          hit=${index === current} />`)}
      </div></div>
    </div>
  `;
}

/** Lines of another source in the same box, for example an agent's own log. */
export const LogLines = ({ buffer, version }) =>
  html`<${Lines} buffer=${buffer} version=${version} found=${{ shown: null, hits: [], pattern: null }} labels=${[""]} times=${false}
    wrap=${false} jump=${null} />`;

/** Saving the whole of one log. */
function Download({ alloc, task, kind, namespace }) {
  const type = kind === "stderr" ? "stderr" : "stdout";
  const saved = url(logPath(alloc), { task, type, plain: true, origin: "start", namespace });
  return html`<a class="button" href=${saved} download=${`${task}.${type}.log`}>Download</a>`;
}

/**
 * @param {{job: string, namespace: string, allocs?: string[], task?: string, tools?: any}} props without allocations those of the job
 *   that run or have failed; without a task all.
 */
export function LogView({ job, namespace, allocs = [], task = "", tools = null }) {
  const kind = query("type", settings.value.logKind);
  const whole = query("from") === "start";
  const [live, setLive] = useState(true);
  const [only, setOnly] = useState(false);
  const [times, setTimes] = useState(false);
  const [jump, setJump] = useState(/** @type {number|null} */ (null));
  const text = query("find");
  const { buffer, version, problem, sources, omitted } = useLines({ job, namespace, allocs, task, kind, whole }, live);
  const found = useFound(buffer, version, text, only);
  const wrap = settings.value.wrap && query("wrap", "0") === "1";
  const step = (forward) => {
    const { hits } = found;
    if (!hits.length) return;
    const now = jump ?? (forward ? -1 : buffer.lines.length);
    setJump(forward ? (hits.find((at) => at > now) ?? hits[0]) : (hits.findLast((at) => at < now) ?? hits[hits.length - 1]));
  };
  useKeys([
    { keys: "n", help: "Next match in the log", run: () => step(true) },
    { keys: "N", help: "Match before", run: () => step(false) },
    { keys: "W", help: "Wrap log lines", run: () => setQuery({ wrap: wrap ? "" : "1" }) },
    { keys: "p", help: "Pause or follow the log", run: () => setLive((before) => !before) },
    { keys: "f", help: "Find in the log", run: () => document.getElementById("log-find")?.focus() },
  ]);
  const single = allocs.length === 1 && task ? allocs[0] : "";
  return html`
    <div class="filters">
      ${KINDS.map(
        (each) =>
          html`<button key=${each} aria-pressed=${kind === each} onClick=${() => {
            choose({ logKind: each });
            setQuery({ type: each });
          }}>${each}</button>`,
      )}
      <button aria-pressed=${!live} onClick=${() => setLive(!live)}>${live ? "Pause" : "Follow"}</button>
      <button aria-pressed=${whole} onClick=${() => setQuery({ from: whole ? "" : "start" })}>From the start</button>
      <button aria-pressed=${wrap} onClick=${() => setQuery({ wrap: wrap ? "" : "1" })}>Wrap</button>
      <button aria-pressed=${times} onClick=${() => setTimes(!times)}>Times</button>
      ${single && html`<${Download} alloc=${single} task=${task} kind=${kind} namespace=${namespace} />`}
      ${tools}
    </div>
    <div class="filters">
      <input id="log-find" type="search" placeholder="Find: words, or /expression/" aria-label="Find in the log" value=${text}
        onInput=${(event) => setQuery({ find: event.target.value })}
        onKeyDown=${(event) => event.key === "Enter" && step(!event.shiftKey)} />
      <label><input type="checkbox" checked=${only} onChange=${(event) => setOnly(event.target.checked)} /> Only lines that match</label>
      ${text && html`
        <span class="dim" role="status">${found.pattern ? `${count(found.hits.length)} lines match` : "not a valid expression"}</span>
        <button onClick=${() => step(false)}>↑</button><button onClick=${() => step(true)}>↓</button>`}
      <span class="dim right">
        ${count(buffer.lines.length)} lines${buffer.dropped
        ? `; the first ${count(buffer.dropped)} are not kept (at most ${count(LINES_MAX)})` : ""}</span>
    </div>
    ${problem && html`<p class="stale" role="alert">${plain(problem)}</p>`}
    ${omitted > 0 && html`<p class="dim">The newest ${sources.length} logs; ${count(omitted)} are left out.</p>`}
    <${Lines} buffer=${buffer} version=${version} found=${found} labels=${labelsOf(sources)} times=${times}
      wrap=${wrap} jump=${jump} />
    ${single && html`<${Command} text=${command(["alloc", "logs"], { f: live, stderr: kind === "stderr", task }, [single])} />`}
  `;
}
