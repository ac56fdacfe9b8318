/** The actions that a job declares: commands that run in its tasks, with their output here. */
import { html, useEffect, useRef, useState } from "../../../vendor/preact.js";
import { get, segment } from "../../core/api.js";
import { command, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { missing } from "../../core/session.js";
import { openExec } from "../../core/exec.js";
import { Ansi } from "../../parts/ansi.js";
import { Command } from "../../parts/copy.js";
import { Empty, Loaded, Section } from "../../parts/page.js";
import { Status } from "../../parts/status.js";
import { toast } from "../../parts/toast.js";

const OUTPUT_MAX = 100000;

/** One run: its socket, its output, how it ended. */
function useRuns() {
  const [runs, setRuns] = useState(/** @type {any[]} */ ([]));
  const sockets = useRef(new Map());
  useEffect(() => () => sockets.current.forEach((socket) => socket.close()), []);
  const change = (id, edit) => setRuns((before) => before.map((run) => (run.id === id ? { ...run, ...edit(run) } : run)));
  const start = ({ job, alloc, group, task, name }) => {
    const id = `${alloc.ID}/${task}/${name}/${Date.now()}`;
    setRuns((before) => [{ id, name, task, alloc, output: "", status: "running" }, ...before]);
    const socket = openExec({
      path: `/v1/job/${segment(job.ID)}/action`,
      query: { action: name, allocID: alloc.ID, task, group, tty: true, namespace: job.Namespace },
      output: (text) => change(id, (run) => ({ output: (run.output + text).slice(-OUTPUT_MAX) })),
      ended: (code, problem) =>
        change(id, () => ({ status: problem ? "failed" : code === 0 ? "complete" : "failed", note: problem || `exit code ${code}` })),
    });
    sockets.current.set(id, socket);
  };
  const stop = (id) => {
    sockets.current.get(id)?.close();
    change(id, () => ({ status: "stopped" }));
  };
  return { runs, start, stop };
}

function Declared({ job, allocs, start }) {
  const found = (job.TaskGroups ?? []).flatMap((group) =>
    (group.Tasks ?? []).flatMap((task) => (task.Actions ?? []).map((action) => ({ group: group.Name, task: task.Name, ...action }))),
  );
  const reason = missing(["alloc-exec"], job.Namespace);
  const run = (each, all) => {
    if (reason) return toast(reason, "bad");
    const running = allocs.filter((alloc) => alloc.TaskGroup === each.group && alloc.ClientStatus === "running");
    if (!running.length) return toast(`No allocation of group "${each.group}" runs.`, "bad");
    for (const alloc of all ? running : running.slice(0, 1)) start({ job, alloc, group: each.group, task: each.task, name: each.Name });
  };
  return html`
    <ul class="list">${found.map(
      (each) => html`
      <li key=${each.group + each.task + each.Name}><strong>${plain(each.Name)}
        </strong> <span class="dim">task ${plain(each.task)} of group ${plain(each.group)}
        </span> <code>${plain([each.Command, ...(each.Args ?? [])].join(" "))}</code>
        <span class="right actions">
          <button aria-disabled=${Boolean(reason)} title=${reason} onClick=${() => run(each, false)}>Run</button>
          <button aria-disabled=${Boolean(reason)} title=${reason} onClick=${() => run(each, true)}>Run in all</button></span>
        <${Command} text=${command(
          ["job", "action"],
          { job: job.ID, group: each.group, task: each.task, namespace: job.Namespace === "default" ? "" : job.Namespace },
          [each.Name])} /></li>`,
    )}</ul>
  `;
}

export function Tab({ job }) {
  const state = useData((signal) => get(`/v1/job/${segment(job.ID)}/allocations`, { namespace: job.Namespace }, { signal }), [job.ID]);
  const { runs, start, stop } = useRuns();
  return html`
    <${Loaded} state=${state}>${(allocs) => html`
      <${Section} title="Declared actions"><${Declared} job=${job} allocs=${allocs ?? []} start=${start} /><//>
      ${runs.map(
        (run) => html`
        <${Section} key=${run.id} title=${run.name}
          note=${html`<${Status} status=${run.status} /> ${plain(run.alloc.Name)} ${run.note ?? ""}`}
          tools=${html`
          <div class="actions">${run.status === "running" && html`<button onClick=${() => stop(run.id)}>Stop</button>`}</div>`}>
          <pre class="code" tabindex="0"><${Ansi} text=${run.output} /></pre>
        <//>`,
      )}
      ${!runs.length && html`<${Empty}>The output of what you run appears here.<//>`}
    `}<//>
  `;
}
