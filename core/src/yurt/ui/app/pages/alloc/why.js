/** Why an allocation is where it is: the scores of the chosen and the next best nodes, as they were then and as they are now. */
import { html } from "../../../vendor/preact.js";
import { get } from "../../core/api.js";
import { command, count, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { href } from "../../core/router.js";
import { Command } from "../../parts/copy.js";
import { Empty, Facts, Loaded, Section, Time } from "../../parts/page.js";

/** Nodes by scorers, the chosen one marked. @param {{scores: any[], label: string}} props */
export function Scores({ scores, label }) {
  if (!scores?.length) return html`<${Empty}>No scores are kept.<//>`;
  const terms = [...new Set(scores.flatMap((row) => Object.keys(row.Scores ?? {})))];
  const sorted = [...scores].sort((a, b) => Number(b.Chosen) - Number(a.Chosen) || b.NormScore - a.NormScore);
  return html`
    <div class="matrix" tabindex="0" role="region" aria-label=${label}><table>
      <thead><tr><th>Node</th><th>Score</th>${terms.map((term) => html`<th key=${term}>${plain(term)}</th>`)}</tr></thead>
      <tbody>${sorted.map(
        (row) => html`
        <tr key=${row.NodeID}
          class=${row.Chosen ? "chosen" : ""}>
          <th scope="row"><a href=${href(["nodes", row.NodeID])}>${plain(row.NodeName || row.NodeID.slice(0, 8))}</a>
          ${row.Chosen ? " (chosen)" : ""}</th><td>${row.NormScore.toFixed(3)}</td>
          ${terms.map((term) => html`<td key=${term}>${(row.Scores?.[term] ?? 0).toFixed(3)}</td>`)}</tr>`,
      )}</tbody></table></div>
  `;
}

function Filtered({ metrics }) {
  if (!metrics) return null;
  const reasons = [
    ...Object.entries(metrics.ConstraintFiltered ?? {}),
    ...Object.entries(metrics.ClassFiltered ?? {}).map(([name, number]) => [`class ${name}`, number]),
    ...Object.entries(metrics.DimensionExhausted ?? {}),
  ];
  return html`<${Facts} facts=${[
    ["Nodes looked at", count(metrics.NodesEvaluated)],
    ["filtered", count(metrics.NodesFiltered)],
    ["without room", count(metrics.NodesExhausted)],
    ["Why", reasons.map(([text, number]) => `${text} (${number})`).join(", ")],
  ]} />`;
}

export function Tab({ alloc }) {
  const state = useData((signal) => get(`/v1/yurt/allocation/${alloc.ID}/why`, { namespace: alloc.Namespace }, { signal }), [alloc.ID]);
  return html`
    <${Loaded} state=${state}>${(found) => html`
      <${Section} title="Then" note=${html`placed <${Time} at=${new Date(found.PlacedAt)} />, ${plain(found.TriggeredBy)}`}>
        <p>${plain(found.Text)}.</p><${Filtered} metrics=${found.Metrics} />
          <${Scores} scores=${found.Scores} label="Scores when it was placed" />
      <//>
      ${found.Now && html`
        <${Section} title="Now"
        note="as the nodes look at this moment"><${Scores} scores=${found.Now.Scores} label="Scores now" />
        ${(found.Now.Notes ?? []).map((note) => html`<p key=${note}>${plain(note)}</p>`)}<//>`}
      <p><a href=${href(["evaluations", alloc.EvalID], { tab: "replay" })}>Replay the evaluation that placed it</a></p>
      <${Command} text=${command(["alloc", "why"], {}, [alloc.ID])} />
    `}<//>
  `;
}
