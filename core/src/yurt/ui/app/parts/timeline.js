/** Events of tasks in order, and the lives of tasks as bars on one time axis. */
import { html } from "../../vendor/preact.js";
import { now } from "../core/clock.js";
import { duration, plain } from "../core/format.js";
import { Empty, Time } from "./page.js";

const BAD = /fail|not restarting|killed|oom|exceeded|disk|template error|artifact.*fail/i;
const GOOD = /^(started|alloc unhealthy fixed|healthy)/i;
const SHOWN_MAX = 200;

/** The colour of an event: an exit with a code counts as bad too. */
export function kindOfEvent(event) {
  if (event.FailsTask || BAD.test(event.Type)) return "bad";
  if (event.Type === "Terminated" && (event.ExitCode || event.Signal || event.Details?.oom_killed === "true")) return "bad";
  return GOOD.test(event.Type) ? "good" : "";
}

/** @param {{events: any[]}} props newest first. */
export function Events({ events }) {
  if (!events.length) return html`<${Empty}>No events yet.<//>`;
  return html`
    ${events.length > SHOWN_MAX && html`<p class="dim">The newest ${SHOWN_MAX} of ${events.length}.</p>`}
    <ol class="timeline" aria-label="Events, newest first">${events.slice(0, SHOWN_MAX).map(
      (event) => html`
      <li key=${`${event.task} ${event.Time} ${event.Type}`}
        class=${kindOfEvent(event)}><b><${Time} at=${event.Time} />
        </b> ${event.task && html`<span class="dim">${plain(event.task)}</span> `}<strong>${plain(event.Type)}</strong>
        <div>${plain(event.DisplayMessage || event.Message)}</div></li>`,
    )}</ol>
  `;
}

const ORDER = { prestart: 0, main: 1, poststart: 2, poststop: 3 };
const hookOf = (task) => task.Lifecycle?.Hook ?? "main";

/** When tasks ran, from the first start to now, in the order of the lifecycle. @param {{group: any, states: Record<string, any>}} props */
export function Lifecycle({ group, states }) {
  const tasks = [...(group?.Tasks ?? [])].sort((a, b) => ORDER[hookOf(a)] - ORDER[hookOf(b)]);
  const time = (text) => (text && !text.startsWith("0001") ? new Date(text).getTime() : 0);
  const lives = tasks.map((task) => {
    const state = states[task.Name] ?? {};
    const from = time(state.StartedAt);
    return { task, state, from, to: from ? time(state.FinishedAt) || now.value : 0 };
  });
  const first = Math.min(...lives.filter((life) => life.from).map((life) => life.from));
  const last = Math.max(...lives.map((life) => life.to));
  const span = Math.max(1, last - first);
  return html`
    <div class="lifecycle">${lives.map(
      ({ task, state, from, to }) => html`
      <div key=${task.Name}>
        <span>${plain(task.Name)} <small class="dim">${hookOf(task)}${task.Lifecycle?.Sidecar ? ", sidecar" : ""}</small></span>
        <span class="lane" role="img" aria-label=${from ? `${state.State}, ran ${duration((to - from) / 1000)}` : "has not started"}
          title=${from ? duration((to - from) / 1000) : "has not started"}>
          ${from > 0 && html`
            <i class=${state.Failed ? "bad" : state.State === "running" ? "good" : "dim"}
            style=${{ left: `${((from - first) / span) * 100}%`, width: `${((to - from) / span) * 100}%` }}></i>`}</span></div>`,
    )}
    </div>
  `;
}
