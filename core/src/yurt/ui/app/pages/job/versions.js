/** Versions of a job: differences to the version before or any other, as fields or as source side by side; revert; tags. */
import { html, useState } from "../../../vendor/preact.js";
import { get, put, remove, segment } from "../../core/api.js";
import { command, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { href } from "../../core/router.js";
import { Actions } from "../../parts/action.js";
import { JobDiff, TextDiff } from "../../parts/diff.js";
import { Loaded, Section, When } from "../../parts/page.js";

const pathOf = (job) => `/v1/job/${segment(job.ID)}`;
const flagsOf = (job) => ({ namespace: job.Namespace === "default" ? "" : job.Namespace });

function actionsOf(job, version, reload) {
  const number = version.Version;
  const tag = version.VersionTag;
  const needs = ["submit-job", "tag-job-version"];
  return [
    number !== job.Version && {
      label: "Revert",
      needs: ["submit-job", "revert-job"],
      namespace: job.Namespace,
      danger: true,
      question: `Registers version ${number} of "${job.ID}" again, as a new version.`,
      command: command(["job", "revert"], flagsOf(job), [job.ID, String(number)]),
      run: () =>
        put(`${pathOf(job)}/revert`, { JobID: job.ID, JobVersion: number, EnforcePriorVersion: job.Version },
          { namespace: job.Namespace }),
      then: reload,
      done: `"${job.ID}" goes back to version ${number}`,
    },
    {
      label: tag ? "Change tag" : "Tag",
      needs,
      namespace: job.Namespace,
      fields: [
        { name: "name", label: "Name", required: true, value: tag?.Name ?? "" },
        { name: "description", label: "Description", value: tag?.Description ?? "" },
      ],
      command: ({ name, description }) =>
        command(["job", "tag", "apply"], { ...flagsOf(job), name, description, version: number }, [job.ID]),
      run: async ({ name, description }) => {
        if (tag && tag.Name !== name) await remove(`${pathOf(job)}/versions/${segment(tag.Name)}/tag`, { namespace: job.Namespace });
        await put(
          `${pathOf(job)}/versions/${segment(name)}/tag`,
          { Name: name, Description: description, Version: number },
          { namespace: job.Namespace },
        );
      },
      then: reload,
      done: `Version ${number} is tagged`,
    },
    tag && {
      label: "Remove tag",
      needs,
      namespace: job.Namespace,
      danger: true,
      question: `Removes the tag "${tag.Name}"; the version may then be collected.`,
      command: command(["job", "tag", "unset"], { ...flagsOf(job), name: tag.Name }, [job.ID]),
      run: () => remove(`${pathOf(job)}/versions/${segment(tag.Name)}/tag`, { namespace: job.Namespace }),
      then: reload,
      done: "The tag was removed",
    },
  ].filter(Boolean);
}

/** The submitted source of two versions, or their JSON where a version came without one. */
function Sources({ job, left, right }) {
  const state = useData(async () => {
    const sources = await Promise.all(
      [left, right].map((version) =>
        get(`${pathOf(job)}/submission`, { namespace: job.Namespace, version }).then(
          (found) => found.Source,
          () => "",
        ),
      ),
    );
    if (sources.every(Boolean)) return sources;
    const jobs = await Promise.all([left, right].map((version) => get(pathOf(job), { namespace: job.Namespace, version })));
    return jobs.map((each) => JSON.stringify(each, null, 2));
  }, [left, right]);
  return html`<${Loaded} state=${state}>${([before, after]) => html`<${TextDiff} before=${before} after=${after} />`}<//>`;
}

function Version({ job, version, diff, versions, reload }) {
  const [open, setOpen] = useState("");
  const [other, setOther] = useState(String(version.Version - 1));
  const title = `Version ${version.Version}`;
  const note = html`
    ${version.Version === job.Version && html`<strong>current</strong> `}${version.Stable ? "stable, " : ""}
    <${When} at=${version.SubmitTime} />
    ${version.VersionTag && html` · tag <strong>${plain(version.VersionTag.Name)}</strong> ${plain(version.VersionTag.Description)}`}`;
  const tools = html`<${Actions} actions=${actionsOf(job, version, reload)} />`;
  const others = versions.filter((each) => each.Version !== version.Version).map((each) => String(each.Version));
  return html`
    <${Section} title=${title} note=${note} tools=${tools}>
      <div class="filters">
        <button aria-pressed=${open === "diff"} onClick=${() => setOpen(open === "diff" ? "" : "diff")}>Changes</button>
        <button aria-pressed=${open === "source"} onClick=${() => setOpen(open === "source" ? "" : "source")}>Side by side</button>
        ${open === "source"
          && html`<label>against version <select value=${other}
          onChange=${(event) => setOther(event.target.value)}>
          ${others.map((each) => html`<option key=${each} value=${each} selected=${each === other}>${each}</option>`)}</select></label>`}
        <a href=${href(["jobs", "run"], { edit: job.ID, namespace: job.Namespace, version: version.Version })}>Clone into the editor</a>
      </div>
      ${open === "diff"
        && (diff ? html`<${JobDiff} diff=${diff} />` : html`<p class="dim">There is no version before to compare with.</p>`)}
      ${open === "source" && others.length > 0
        && html`<${Sources} job=${job} left=${others.includes(other) ? other : others[0]} right=${String(version.Version)} />`}
    <//>
  `;
}

export function Tab({ job, reload }) {
  const state = useData(
    (signal) => get(`${pathOf(job)}/versions`, { namespace: job.Namespace, diffs: true }, { signal }),
    [job.ID, job.Namespace, job.ModifyIndex],
  );
  const again = () => {
    state.reload();
    reload();
  };
  return html`
    <${Loaded} state=${state}>${(data) => {
      const versions = data.Versions ?? [];
      return versions.map(
        (version, at) =>
          html`<${Version} key=${version.Version} job=${job} version=${version} diff=${data.Diffs?.[at]} versions=${versions}
            reload=${again} />`,
      );
    }}<//>
  `;
}
