/** The submitted job file with its variables, and the whole job as JSON. */
import { html } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { command, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { href, query, setQuery } from "../../core/router.js";
import { Command } from "../../parts/copy.js";
import { CodeView } from "../../parts/editor.js";
import { Facts, Loaded, Section } from "../../parts/page.js";

async function load(job, signal) {
  const options = { signal };
  const path = `/v1/job/${segment(job.ID)}`;
  const [submission, variables] = await Promise.all([
    get(`${path}/submission`, { namespace: job.Namespace, version: job.Version }, options).catch(() => null),
    get("/v1/vars", { namespace: job.Namespace, prefix: `nomad/jobs/${job.ID}` }, options).catch(() => []),
  ]);
  return { submission, variables: variables ?? [] };
}

function Variables({ job, variables }) {
  const own = [
    `nomad/jobs`,
    `nomad/jobs/${job.ID}`,
    ...(job.TaskGroups ?? []).flatMap((group) => [
      `nomad/jobs/${job.ID}/${group.Name}`,
      ...(group.Tasks ?? []).map((task) => `nomad/jobs/${job.ID}/${group.Name}/${task.Name}`),
    ]),
  ];
  const paths = new Set(variables.map((each) => each.Path));
  return html`
    <${Section} title="Variables that the job may read by itself">
      <ul class="list">${own.slice(0, 50).map(
        (
          path,
        ) => html`<li
          key=${path}><a href=${href(["variables", ...path.split("/")], { namespace: job.Namespace })}><code>${plain(path)}</code></a>
        <span class="dim">${paths.has(path) ? "there" : "not written"}</span></li>`,
      )}</ul>
    <//>
  `;
}

export function Tab({ job }) {
  const state = useData((signal) => load(job, signal), [job.ID, job.Namespace, job.Version]);
  return html`
    <${Loaded} state=${state}>${({ submission, variables }) => {
      const source = submission?.Source;
      const kind = query("as", source ? "source" : "json");
      return html`
        <div class="filters">
          <button aria-pressed=${kind === "source"} disabled=${!source} onClick=${() => setQuery({ as: "source" })}>Source</button>
          <button aria-pressed=${kind === "json"} onClick=${() => setQuery({ as: "json" })}>JSON</button>
          <a class="button" href=${href(["jobs", "run"], { edit: job.ID, namespace: job.Namespace })}>Edit</a>
          ${!source && html`<span class="dim">The job came as JSON, or its source was not kept.</span>`}
        </div>
        <${CodeView} text=${kind === "source" && source ? source : JSON.stringify(job, null, 2)}
          language=${kind === "source" ? "hcl" : "json"} label="Definition of the job" />
        ${submission?.VariableFlags && Object.keys(submission.VariableFlags).length > 0
          && html`<${Section} title="Variables of the job file"><${Facts} facts=${Object.entries(submission.VariableFlags)} /><//>`}
        ${submission?.Variables && html`<${Section} title="Variable file"><pre class="code">${plain(submission.Variables)}</pre><//>`}
        <${Variables} job=${job} variables=${variables} />
        <${Command} text=${command(
          ["job", "inspect"], { namespace: job.Namespace === "default" ? "" : job.Namespace, hcl: kind === "source" }, [job.ID])} />
      `;
    }}<//>
  `;
}
