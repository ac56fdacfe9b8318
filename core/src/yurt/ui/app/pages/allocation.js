/** One allocation, or one task of it: summary, logs, files, terminal, why it is here. */
import { html } from "../../vendor/preact.js";
import { get, put } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import { useData } from "../core/load.js";
import { allocTopic } from "../core/live.js";
import { toRows } from "../core/list.js";
import { go, href, query } from "../core/router.js";
import { config, missing } from "../core/session.js";
import { Actions, ask, obstacle } from "../parts/action.js";
import { Heading, Loaded, Tabs } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { Later } from "./job.js";
import { AllocationSummary } from "./alloc/summary.js";
import { TaskSummary } from "./alloc/task.js";

const LATER = {
  logs: () => import("./alloc/logs.js"),
  files: () => import("./alloc/files.js"),
  exec: () => import("./alloc/exec.js"),
  why: () => import("./alloc/why.js"),
};
const SIGNALS = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGKILL"];

async function load(id, signal) {
  const alloc = await get(`/v1/allocation/${id}`, { namespace: "*" }, { signal });
  const list = await get("/v1/yurt/allocations", { namespace: alloc.Namespace, where: `ID:${alloc.ID}`, per_page: 1 }, { signal });
  return { alloc, row: toRows(list.Columns)[0] ?? {} };
}

/** A task is stopped and keeps its place, or starts again; one with a `schedule` may follow it again. @returns {any[]} */
function pauseActions(alloc, task, reload) {
  const spec = (alloc.Job?.TaskGroups ?? []).find((group) => group.Name === alloc.TaskGroup)?.Tasks?.find((each) => each.Name === task);
  const { Paused = "" } = alloc.TaskStates?.[task] ?? {};
  const act = (label, state, question, done) => ({
    label,
    needs: ["submit-job", "pause-allocation"],
    namespace: alloc.Namespace,
    question,
    command: command(["alloc", "pause"], { state }, [alloc.ID, task]),
    run: () => put(`/v1/client/allocation/${alloc.ID}/pause`, { Task: task, ScheduleState: state }, { namespace: alloc.Namespace }),
    then: reload,
    done,
  });
  const isPaused = Paused.endsWith("pause");
  return [
    isPaused
      ? act("Run task", "run", `Starts "${task}"${spec?.Schedule ? ", whatever its schedule says" : ""}.`, `"${task}" runs again`)
      : act("Pause task", "pause", `Stops "${task}"; it keeps its place and starts again when it may run.`, `"${task}" is paused`),
    spec?.Schedule && act("Follow schedule", "scheduled", `The schedule of "${task}" decides again.`, `"${task}" follows its schedule`),
  ].filter(Boolean);
}

/** What can be done to an allocation, or to one task of it. @returns {any[]} */
function actionsOf(alloc, task, reload) {
  const query = { namespace: alloc.Namespace };
  const common = { needs: ["alloc-lifecycle"], namespace: alloc.Namespace, then: reload };
  const stopped =
    alloc.ClientStatus === "complete" || alloc.ClientStatus === "failed" || alloc.ClientStatus === "lost"
      ? `The allocation is ${alloc.ClientStatus}`
      : "";
  const running = stopped || (alloc.ClientStatus === "running" ? "" : `The allocation is ${alloc.ClientStatus}`);
  const name = task ? `task "${task}"` : `all running tasks of ${alloc.Name}`;
  return [
    {
      ...common,
      label: "Restart",
      unavailable: running,
      question: `Restarts ${name} in place.`,
      fields: task ? [] : [{ name: "all", label: "All tasks, also those that have ended", kind: "checkbox" }],
      command: ({ all }) => command(["alloc", "restart"], { task, "all-tasks": all }, [alloc.ID]),
      run: ({ all }) => put(`/v1/client/allocation/${alloc.ID}/restart`, { TaskName: task ?? "", AllTasks: Boolean(all) }, query),
      done: `${name} restarts`,
    },
    {
      ...common,
      label: "Signal",
      unavailable: running,
      fields: [{ name: "signal", label: "Signal", kind: "select", options: SIGNALS, value: "SIGHUP" }],
      command: ({ signal }) => command(["alloc", "signal"], { s: signal, task }, [alloc.ID]),
      run: ({ signal }) => put(`/v1/client/allocation/${alloc.ID}/signal`, { Signal: signal, Task: task ?? "" }, query),
      done: `The signal was sent to ${name}`,
    },
    ...(task && !stopped ? pauseActions(alloc, task, reload) : []),
    !task && {
      ...common,
      label: "Stop",
      danger: true,
      unavailable: stopped,
      question: `Stops ${alloc.Name}; its job places another one if it wants it.`,
      command: command(["alloc", "stop"], {}, [alloc.ID]),
      run: () => put(`/v1/allocation/${alloc.ID}/stop`, {}, query),
      done: `${alloc.Name} is being stopped`,
    },
  ].filter(Boolean);
}

function tabsOf(alloc, task) {
  const exec = config.value.Exec !== false && !missing(["alloc-exec"], alloc.Namespace);
  return /** @type {[string, string][]} */ ([
    ["", "Overview"],
    ["logs", "Logs"],
    ["files", "Files"],
    ...(exec ? [["exec", "Terminal"]] : []),
    ...(task ? [] : [["why", "Why here"]]),
  ]);
}

function View({ id, task = "" }) {
  const state = useData((signal) => load(id, signal), [id], [allocTopic("*", id)]);
  const tab = query("tab");
  const to = (name) => href(["allocations", id, ...(task ? [task] : [])], { tab: name });
  const alloc = state.data?.alloc;
  const actions = alloc ? actionsOf(alloc, task, state.reload) : [];
  const act = (label) => {
    const found = actions.find((each) => each.label === label);
    if (found && !obstacle(found)) ask(found);
  };
  useKeys([
    { keys: "l", help: "Logs", run: () => go(to("logs")) },
    { keys: "e", help: "Terminal", run: () => go(to("exec")) },
    { keys: "F", help: "Files", run: () => go(to("files")) },
    { keys: "w", help: "Why here", run: () => go(href(["allocations", id], { tab: "why" })) },
    { keys: "R", help: "Restart", run: () => act("Restart") },
    { keys: "S", help: "Stop", run: () => act("Stop") },
  ]);
  const crumbs = /** @type {[string, string][]} */ (
    alloc
      ? [
          ["Jobs", "/ui/jobs"],
          [alloc.JobID, href(["jobs", alloc.JobID], { namespace: alloc.Namespace === "default" ? "" : alloc.Namespace })],
          ...(task ? [[alloc.Name, href(["allocations", id])]] : []),
        ]
      : [["Allocations", "/ui/allocations"]]
  );
  const status = task ? alloc?.TaskStates?.[task]?.State : (state.data?.row.Status ?? alloc?.ClientStatus);
  return html`
    <${Heading} title=${task || (alloc?.Name ?? id.slice(0, 8))} kind=${task ? "task" : "allocation"} crumbs=${crumbs}>
      ${alloc && html`
        <${Status} status=${task && alloc.TaskStates?.[task]?.Failed ? "failed" : (status ?? "pending")} note=${state.data.row.Reason} />
        <span class="dim">on <a href=${href(["nodes", alloc.NodeID])}>${plain(alloc.NodeName)}</a></span>
        <${Actions} actions=${actions} />`}
    <//>
    <${Loaded} state=${state}>${({ row }) => html`
      <${Tabs} tabs=${tabsOf(alloc, task)} current=${tab} to=${to} />
      ${LATER[tab] ? html`<${Later} key=${tab} load=${LATER[tab]} alloc=${alloc} task=${task} />` : task
        ? html`<${TaskSummary} alloc=${alloc} task=${task} />` : html`<${AllocationSummary} alloc=${alloc} row=${row} />`}
    `}<//>
  `;
}

export const Allocation = View;
export const Task = View;
