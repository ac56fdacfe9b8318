/** A job's evaluations. */
import { html } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { useData } from "../../core/load.js";
import { jobTopic } from "../../core/live.js";
import { Empty, Loaded } from "../../parts/page.js";
import { LocalTable } from "../../parts/table.js";
import { EVALUATION_COLUMNS, evaluationHref } from "../evaluations.js";

export function Tab({ job }) {
  const state = useData(
    (signal) => get(`/v1/job/${segment(job.ID)}/evaluations`, { namespace: job.Namespace }, { signal }),
    [job.ID, job.Namespace],
    [jobTopic(job.Namespace, job.ID)],
  );
  return html`
    <${Loaded} state=${state}>${(rows) => html`
      <${LocalTable} name="evals" label="Evaluations" columns=${EVALUATION_COLUMNS} rows=${rows ?? []} keyOf=${(row) => row.ID}
        href=${evaluationHref} sort="-created" main=${true}
        search=${(row) => `${row.ID} ${row.Status} ${row.TriggeredBy}`}
          empty=${html`<${Empty}>No evaluations: they are collected some time after they end.<//>`} />`}<//>
  `;
}
