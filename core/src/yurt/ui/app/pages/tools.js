/** The log of any agent, the event stream, and the agent's metrics. */
import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact.js";
import { get, isAbort, lines } from "../core/api.js";
import { command, count, isoTime, plain } from "../core/format.js";
import { LogBuffer } from "../core/log_buffer.js";
import { useData, useInterval } from "../core/load.js";
import { query, setQuery } from "../core/router.js";
import { Command } from "../parts/copy.js";
import { LogLines } from "../parts/logs.js";
import { Empty, Heading, Loaded } from "../parts/page.js";
import { LocalTable } from "../parts/table.js";

const LEVELS = ["trace", "debug", "info", "warn", "error"];
const EVENTS_MAX = 500;
const TOPICS = [
  "Job",
  "Allocation",
  "Evaluation",
  "Deployment",
  "Node",
  "NodePool",
  "Namespace",
  "Service",
  "HostVolume",
  "CSIVolume",
  "Operator",
  "ACLToken",
  "ACLPolicy",
  "ACLRole",
  "Variable",
];
const STEP_S = 5;

const decode = (frame) => (frame.Data ? new TextDecoder().decode(Uint8Array.from(atob(frame.Data), (char) => char.charCodeAt(0))) : "");

export function Monitor() {
  const level = query("level", "info");
  const node = query("node");
  const server = query("server");
  const buffer = useRef(new LogBuffer());
  const [version, setVersion] = useState(0);
  const [problem, setProblem] = useState("");
  const nodes = useData((signal) => get("/v1/yurt/nodes", { fields: "ID,Name", per_page: 200, sort: "Name" }, { signal }), []);
  useEffect(() => {
    buffer.current = new LogBuffer();
    const controller = new AbortController();
    const read = async () => {
      for await (const frame of lines(
        "/v1/agent/monitor",
        { log_level: level, node_id: node, server_id: node ? "" : server },
        controller.signal,
      )) {
        buffer.current.add(decode(frame), { at: Date.now() });
        setVersion((before) => before + 1);
      }
    };
    setProblem("");
    read().catch((error) => isAbort(error) || setProblem(error.message));
    return () => controller.abort();
  }, [level, node, server]);
  const columns = nodes.data?.Columns ?? { ID: [], Name: [] };
  return html`
    <${Heading} title="Log of an agent" crumbs=${[["Operator", "/ui/operator"]]} />
    <div class="filters">
      <label>Level <select value=${level}
        onChange=${(event) => setQuery({ level: event.target.value })}>
        ${LEVELS.map((each) => html`<option key=${each} value=${each} selected=${each === level}>${each}</option>`)}</select></label>
      <label>Agent <select value=${node}
        onChange=${(event) => setQuery({ node: event.target.value })}><option value="">${server ? plain(server) : "this one"}</option>
        ${columns.ID.map((id, at) => html`<option key=${id} value=${id} selected=${id === node}>${plain(columns.Name[at])}</option>`)}
        </select></label>
    </div>
    ${problem && html`<p class="stale" role="alert">${plain(problem)}</p>`}
    <${LogLines} buffer=${buffer.current} version=${version} />
    <${Command} text=${command(["monitor"], { "log-level": level, "node-id": node, "server-id": node ? "" : server })} />
  `;
}

export function Events() {
  const topic = query("topic");
  const [events, setEvents] = useState(/** @type {any[]} */ ([]));
  const [live, setLive] = useState(true);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!live) return undefined;
    const controller = new AbortController();
    const read = async () => {
      for await (const line of lines("/v1/event/stream", { topic: topic || "*", namespace: "*" }, controller.signal)) {
        const found = (line.Events ?? [])
          .map((event, at) => ({ ...event, Index: line.Index, id: `${line.Index} ${at}`, at: Date.now() }));
        if (found.length) setEvents((before) => [...found.reverse(), ...before].slice(0, EVENTS_MAX));
      }
    };
    setProblem("");
    read().catch((error) => isAbort(error) || setProblem(error.message));
    return () => controller.abort();
  }, [topic, live]);
  const columns = useMemo(
    () => [
      { id: "index", title: "Index", value: (event) => event.Index, number: true, size: "6rem", cell: (event) => event.Index },
      { id: "time", title: "Arrived", from: /** @type {"md"} */ ("md"), size: "11rem", cell: (event) => isoTime(new Date(event.at)) },
      { id: "topic", title: "Topic", value: (event) => event.Topic, size: "8rem", cell: (event) => plain(event.Topic) },
      { id: "type", title: "Type", from: /** @type {"md"} */ ("md"), value: (event) => event.Type, cell: (event) => plain(event.Type) },
      {
        id: "key",
        title: "Key",
        value: (event) => event.Key,
        cell: (event) => html`<span title=${plain(event.Key)}>${plain(event.Key)}</span>`,
      },
      { id: "namespace", title: "Namespace", from: /** @type {"lg"} */ ("lg"), cell: (event) => plain(event.Namespace) },
    ],
    [],
  );
  return html`
    <${Heading} title="Events" crumbs=${[["Operator", "/ui/operator"]]} />
    <div class="filters"><label>Topic <select value=${topic} onChange=${(event) => {
      setEvents([]);
      setQuery({ topic: event.target.value });
    }}><option value="">all</option>
      ${TOPICS.map((each) => html`<option key=${each} value=${each} selected=${each === topic}>${each}</option>`)}</select></label>
      <button aria-pressed=${!live} onClick=${() => setLive(!live)}>${live ? "Pause" : "Follow"}</button>
        <button onClick=${() => setEvents([])}>Clear</button></div>
    ${problem && html`<p class="stale" role="alert">${plain(problem)}</p>`}
    <${LocalTable} name="events" label="Events" columns=${columns} rows=${events} keyOf=${(event) => event.id}
      search=${(event) => `${event.Topic} ${event.Type} ${event.Key}`} main=${true} empty=${html`<${Empty}>Waiting for events.<//>`} />
    ${events.length === EVENTS_MAX && html`<p class="dim">The newest ${EVENTS_MAX}.</p>`}
  `;
}

const METRICS = [
  {
    id: "name",
    title: "Name",
    value: (row) => row.name,
    size: "minmax(10rem, 3fr)",
    cell: (row) => html`<code title=${plain(row.name)}>${plain(row.name)}</code>`,
  },
  { id: "kind", title: "Kind", from: /** @type {"md"} */ ("md"), value: (row) => row.kind, size: "6rem", cell: (row) => row.kind },
  {
    id: "value",
    title: "Value",
    value: (row) => row.value,
    number: true,
    size: "8rem",
    cell: (row) => (Number.isInteger(row.value) ? count(row.value) : row.value.toFixed(3)),
  },
  {
    id: "labels",
    title: "Labels",
    from: /** @type {"md"} */ ("md"),
    cell: (row) =>
      plain(
        Object.entries(row.labels)
          .map(([name, value]) => `${name}=${value}`)
          .join(" "),
      ),
  },
];

export function Metrics() {
  const state = useData((signal) => get("/v1/metrics", {}, { signal }), []);
  useInterval(state.reload, STEP_S);
  const rows = useMemo(
    () => [
      ...(state.data?.Gauges ?? []).map((each) => ({ name: each.Name, kind: "gauge", value: each.Value, labels: each.Labels ?? {} })),
      ...(state.data?.Counters ?? []).map((each) => ({
        name: each.Name,
        kind: "counter",
        value: each.Sum ?? each.Count,
        labels: each.Labels ?? {},
      })),
      ...(state.data?.Samples ?? []).map((each) => ({
        name: each.Name,
        kind: "mean (ms)",
        value: each.Mean ?? 0,
        labels: each.Labels ?? {},
      })),
    ],
    [state.data],
  );
  return html`
    <${Heading} title="Metrics of this agent"
      crumbs=${[["Operator", "/ui/operator"]]}>
      <div class="actions"><a class="button" href="/v1/metrics?format=prometheus" download="metrics.txt">Prometheus text</a></div><//>
    <${Loaded} state=${state}>
      ${() => html`
      <${LocalTable} name="metrics" label="Metrics" columns=${METRICS} rows=${rows}
      keyOf=${(row) => `${row.kind} ${row.name} ${JSON.stringify(row.labels)}`} search=${(row) => row.name} sort="name" main=${true}
      empty=${html`<${Empty}>No metrics yet.<//>`} />`}<//>
  `;
}
