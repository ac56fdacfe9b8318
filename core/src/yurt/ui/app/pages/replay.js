/** An evaluation made again from the log, step by step, compared with what was stored and with what would happen now. */
import { html, useEffect, useState } from "../../vendor/preact.js";
import { call, get, segment } from "../core/api.js";
import { command, count, plain, short } from "../core/format.js";
import { useData } from "../core/load.js";
import { href, query, setQuery } from "../core/router.js";
import { Command } from "../parts/copy.js";
import { Empty, Facts, Loaded, Section, Time } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { Scores } from "./alloc/why.js";
import { GroupExplanation } from "./job/why.js";

const verdict = (identical) =>
  html`<${Status} status=${identical ? "complete" : "failed"} /> ${identical ? "identical to the byte" : "different"}`;

function Attempt({ attempt }) {
  return html`
    <${Section} title=${`Attempt ${attempt.Number + 1}`} note=${verdict(attempt.IsIdentical)}>
      <${Facts} facts=${[
        ["State at index", count(attempt.StateIndex)],
        ["Made", html`<${Time} at=${new Date(attempt.Now)} />`],
        ["Placements", count(attempt.Placements)],
        ["Stops", count(attempt.Stops)],
        ["Updates", count(attempt.Updates)],
        ["Rows in the log", count(attempt.Stored)],
        ["refused by the applier", count(attempt.Refused)],
        ["different", count(attempt.Different)],
        ["Plans laid over", count(attempt.LaidOver)],
        ["Seed", html`<code>${attempt.Seed}</code>`],
        ["Digest", html`<code>${attempt.Digest}</code>`],
      ]} />
    <//>
  `;
}

const best = (scores) => [...(scores ?? [])].sort((a, b) => b.NormScore - a.NormScore)[0];

/** The node that the same allocation would get now, next to its actual node. */
function Today({ why }) {
  const now = best(why.Now?.Scores);
  if (!why.Now) return html`<li>Today: the allocation has ended, so nothing is placed in its stead.</li>`;
  if (!now) return html`<li>Today: no node would take it.</li>`;
  const chosen = now.NodeID === why.NodeID;
  return html`
    <li>Today: <strong class=${chosen ? "good" : "warn"}>${chosen ? "the same node would be chosen"
      : `${plain(now.NodeName || now.NodeID)} would be chosen`}</strong> (score ${now.NormScore.toFixed(3)})
      <${Scores} scores=${why.Now.Scores} label="Scores now" /></li>
  `;
}

/** The stages of a placement, one at a time: filtered, ranked, chosen. */
function Steps({ evaluation }) {
  const state = useData(
    async (signal) => {
      const allocs = await get(`/v1/evaluation/${evaluation.ID}/allocations`, { namespace: evaluation.Namespace }, { signal });
      const placed = (allocs ?? []).filter((alloc) => alloc.EvalID === evaluation.ID).slice(0, 20);
      return Promise.all(placed.map((alloc) => get(`/v1/yurt/allocation/${alloc.ID}/why`, { namespace: alloc.Namespace }, { signal })));
    },
    [evaluation.ID],
  );
  const [at, setAt] = useState(0);
  return html`
    <${Loaded} state=${state}>${(found) => {
      const why = found[Math.min(at, found.length - 1)];
      if (!why) return html`<${Empty}>It placed nothing that is still known.<//>`;
      const metrics = why.Metrics ?? {};
      const lost = [...Object.entries(metrics.ConstraintFiltered ?? {}), ...Object.entries(metrics.ClassFiltered ?? {})];
      return html`
        <p class="filters"><button disabled=${at === 0} onClick=${() => setAt(at - 1)}>Before</button>
          <span>Placement ${at + 1} of ${found.length}: <strong>${plain(why.Name)}</strong></span>
          <button disabled=${at >= found.length - 1} onClick=${() => setAt(at + 1)}>Next</button></p>
        <ol>
          <li>Filtered: ${count(metrics.NodesFiltered)} of ${count(metrics.NodesEvaluated)} nodes${lost.length
            ? `: ${lost.map(([text, number]) => `${plain(text)} (${number})`).join(", ")}` : ""}</li>
          <li>Without room: ${count(metrics.NodesExhausted)} nodes ${Object.entries(metrics.DimensionExhausted ?? {})
            .map(([text, number]) => `${plain(text)} (${number})`)
            .join(", ")}</li>
          <li>Ranked: <${Scores} scores=${why.Scores} label="Scores then" /></li>
          <li>Chosen: ${plain(why.Text)}</li>
          <${Today} why=${why} />
        </ol>
      `;
    }}<//>
  `;
}

function Now({ evaluation }) {
  const state = useData(
    async (signal) =>
      (
        await call("POST", "/v1/yurt/job/why-not", {
          body: { JobID: evaluation.JobID, Namespace: evaluation.Namespace },
          query: { namespace: evaluation.Namespace },
          signal,
        })
      ).data,
    [evaluation.ID],
  );
  return html`<${Loaded}
    state=${state}>
    ${(found) => (found.Groups ?? [])
    .map((group) =>
    html`<${GroupExplanation} key=${group.Name} job=${{ ID: evaluation.JobID, Namespace: evaluation.Namespace }} group=${group} />`)}
    <//>`;
}

/** All evaluations of the same job in the order of time; a slider and two buttons step through them. */
function TimeSlider({ list, at }) {
  const [shown, setShown] = useState(at);
  useEffect(() => setShown(at), [at]);
  if (list.length < 2) return null;
  const step = (to) => setQuery({ step: list[to].ID });
  const preview = list[Math.min(shown, list.length - 1)];
  const { PreviousEval } = list[at];
  const cause = list.findIndex((each) => each.ID === PreviousEval);
  return html`
    <${Section} title="Evaluations of the job in time" note=${`${at + 1} of ${list.length}`}>
      <p class="filters slider">
        <button disabled=${at === 0} onClick=${() => step(at - 1)}>Earlier</button>
        <input type="range" min="0" max=${list.length - 1} step="1" value=${shown} aria-label="Evaluation"
          aria-valuetext=${`${shown + 1} of ${list.length}, ${preview.TriggeredBy}`}
          onInput=${(event) => setShown(Number(event.target.value))} onChange=${(event) => step(Number(event.target.value))} />
        <button disabled=${at === list.length - 1} onClick=${() => step(at + 1)}>Later</button>
        ${cause >= 0 && html`<button onClick=${() => step(cause)}>Its cause</button>`}
      </p>
      <p><${Time} at=${preview.CreateTime} /> <${Status} status=${preview.Status} /> ${plain(preview.TriggeredBy)}, at
        index ${count(preview.CreateIndex)}${preview.StatusDescription ? `: ${plain(preview.StatusDescription)}` : ""} <a
        href=${href(["evaluations", preview.ID])}>${short(preview.ID)}</a></p>
    <//>
  `;
}

/** The evaluation, and the steps through those of its job; `step` in the address names the one shown. */
export function Replay({ evaluation }) {
  const state = useData(async (signal) => {
    const path = `/v1/job/${segment(evaluation.JobID)}/evaluations`;
    const rows = evaluation.JobID ? await get(path, { namespace: evaluation.Namespace }, { signal }) : [];
    return [...(rows ?? [])].sort((a, b) => a.CreateIndex - b.CreateIndex);
  }, [evaluation.ID]);
  const list = state.data?.length ? state.data : [evaluation];
  const wanted = query("step") || evaluation.ID;
  const found = list.findIndex((each) => each.ID === wanted);
  const chosen = list[found] ?? evaluation;
  return html`<${TimeSlider} list=${list} at=${Math.max(0, found)} /><${OneReplay} key=${chosen.ID} evaluation=${chosen} />`;
}

/** @param {{evaluation: any}} props */
function OneReplay({ evaluation }) {
  const state = useData(
    (signal) => get(`/v1/yurt/evaluation/${evaluation.ID}/replay`, { namespace: evaluation.Namespace }, { signal }),
    [evaluation.ID],
  );
  return html`
    <${Section} title="Steps"><${Steps} evaluation=${evaluation} /><//>
    <${Loaded} state=${state}>${(found) => html`
      <${Section} title="Made again" note=${verdict(found.IsIdentical)}><${Facts} facts=${[
        ["Began with the state at", count(found.BaseIndex)],
        ["Failed placements", found.IsOutcomeIdentical ? "the same" : "different"],
      ]} /><//>
      ${(found.Attempts ?? []).map((attempt) => html`<${Attempt} key=${attempt.Number} attempt=${attempt} />`)}
    `}<//>
    <h2>What would happen now</h2>
    <${Now} evaluation=${evaluation} />
    <${Command} text=${command(["eval", "replay"], {}, [evaluation.ID])} />
  `;
}
