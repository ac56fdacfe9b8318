/** A job's services with their addresses and checks. */
import { html } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { useData } from "../../core/load.js";
import { jobAllocsTopic } from "../../core/live.js";
import { Empty, Loaded } from "../../parts/page.js";
import { LocalTable } from "../../parts/table.js";
import { INSTANCE_COLUMNS } from "../services.js";

export function Tab({ job }) {
  const state = useData(
    (signal) => get(`/v1/job/${segment(job.ID)}/services`, { namespace: job.Namespace }, { signal }),
    [job.ID, job.Namespace],
    [jobAllocsTopic(job.Namespace, job.ID)],
  );
  return html`
    <${Loaded} state=${state}>${(
      rows,
    ) => html`<${LocalTable} name="services" label="Services" columns=${INSTANCE_COLUMNS} rows=${rows ?? []} keyOf=${(row) => row.ID}
      main=${true}
      search=${(row) => `${row.ServiceName} ${row.Address} ${(row.Tags ?? []).join(" ")}`}
        empty=${html`
        <${Empty}>No service is registered. A <code>service</code> block with <code>provider = "nomad"</code> registers one.<//>`} />`}
        <//>
  `;
}
