/** The operator's settings: scheduler, keys, garbage, plugins of the agent, and links to log, events and metrics. */
import { html } from "../../vendor/preact.js";
import { get, put, remove } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { useData } from "../core/load.js";
import { Actions } from "../parts/action.js";
import { Id } from "../parts/copy.js";
import { Empty, Facts, Heading, Loaded, Section, Time } from "../parts/page.js";
import { Status } from "../parts/status.js";

const ALGORITHMS = ["binpack", "spread"];
const PREEMPTION = ["SystemSchedulerEnabled", "SysBatchSchedulerEnabled", "BatchSchedulerEnabled", "ServiceSchedulerEnabled"];

function change(config, reload) {
  const flags = (values) => ({
    "scheduler-algorithm": values.algorithm,
    "memory-oversubscription": String(values.oversubscription),
    "reject-job-registration": String(values.reject),
    "pause-eval-broker": String(values.pause),
    ...Object.fromEntries(
      PREEMPTION.map((name) => [`preempt-${name.replace("SchedulerEnabled", "").toLowerCase()}-scheduler`, String(values[name])]),
    ),
  });
  return {
    label: "Change",
    needs: ["operator:write"],
    then: reload,
    done: "The scheduler's settings were written",
    fields: [
      { name: "algorithm", label: "Algorithm", kind: "select", options: ALGORITHMS, value: config.SchedulerAlgorithm },
      { name: "oversubscription", label: "Memory oversubscription", kind: "checkbox", value: config.MemoryOversubscriptionEnabled },
      {
        name: "reject",
        label: "Reject registrations of jobs (but by management tokens)",
        kind: "checkbox",
        value: config.RejectJobRegistration,
      },
      { name: "pause", label: "Pause the evaluation broker: nothing is scheduled", kind: "checkbox", value: config.PauseEvalBroker },
      ...PREEMPTION.map((name) => ({
        name,
        label: `Preemption by ${name.replace("SchedulerEnabled", "").toLowerCase()} jobs`,
        kind: "checkbox",
        value: config.PreemptionConfig?.[name] ?? false,
      })),
    ],
    command: (values) => command(["operator", "scheduler", "set-config"], flags(values)),
    run: (values) =>
      put(
        "/v1/operator/scheduler/configuration",
        {
          ...config,
          SchedulerAlgorithm: values.algorithm,
          MemoryOversubscriptionEnabled: values.oversubscription,
          RejectJobRegistration: values.reject,
          PauseEvalBroker: values.pause,
          PreemptionConfig: Object.fromEntries(PREEMPTION.map((name) => [name, values[name]])),
        },
        { cas: config.ModifyIndex },
      ).then((answer) => {
        if (answer.Updated === false) throw new TypeError("The settings have changed meanwhile. Close, read them, change them again.");
      }),
  };
}

function Scheduler() {
  const state = useData((signal) => get("/v1/operator/scheduler/configuration", {}, { signal }), []);
  return html`
    <${Loaded} state=${state}>${({ SchedulerConfig: config }) => html`
      <${Section} title="Scheduler" tools=${html`<${Actions} actions=${[change(config, state.reload)]} />`}>
        <${Facts} facts=${[
          ["Algorithm", config.SchedulerAlgorithm],
          ["Memory oversubscription", config.MemoryOversubscriptionEnabled ? "on" : "off"],
          ["Registration of jobs", config.RejectJobRegistration ? "rejected" : "accepted"],
          ["Broker", config.PauseEvalBroker ? "paused" : "runs"],
          [
            "Preemption by",
            PREEMPTION.filter((name) => config.PreemptionConfig?.[name])
              .map((name) => name.replace("SchedulerEnabled", "").toLowerCase())
              .join(", ") || "nobody",
          ],
        ]} />
      <//>`}<//>
  `;
}

function Keys() {
  const state = useData((signal) => get("/v1/operator/keyring/keys", {}, { signal }), []);
  const rotate = {
    label: "Rotate",
    needs: ["operator:write", "management"],
    question: "Makes a new root key; with a full rotation everything is encrypted again.",
    fields: [{ name: "full", label: "Full: encrypt everything again", kind: "checkbox" }],
    command: ({ full }) => command(["operator", "root", "keyring", "rotate"], { full }),
    run: ({ full }) => put("/v1/operator/keyring/rotate", {}, { full }),
    then: state.reload,
    done: "A new root key is used",
  };
  const drop = (key) => ({
    label: "Remove",
    danger: true,
    needs: ["operator:write", "management"],
    unavailable: key.State === "active" ? "The active key is needed" : "",
    question: `Removes the root key ${key.KeyID}; what it encrypted can no longer be read.`,
    command: command(["operator", "root", "keyring", "remove"], {}, [key.KeyID]),
    run: () => remove(`/v1/operator/keyring/key/${key.KeyID}`),
    then: state.reload,
    done: "The key was removed",
  });
  return html`
    <${Section} title="Root keys" tools=${html`<${Actions} actions=${[rotate]} />`}>
      <${Loaded} state=${state}>
        ${(keys) => html`
        <ul class="list">
        ${(keys ?? [])
        .map((key) =>
        html`<li key=${key.KeyID}>
        <${Id} id=${key.KeyID} /> <${Status} status=${key.State} /> <span
        class="dim">${plain(key.Algorithm)}, <${Time} at=${key.CreateTime} /></span>
        <span class="right"><${Actions} actions=${[drop(key)]} /></span></li>`)}</ul>`}<//>
    <//>
  `;
}

function Plugins() {
  const state = useData((signal) => get("/v1/yurt/plugins", {}, { signal }), []);
  const reload = (plugin) => ({
    label: "Reload",
    needs: ["agent:write"],
    question: `Restarts the plugin ${plugin.Name} of this agent.`,
    command: command(["plugin", "reload"], {}, [plugin.Name]),
    run: () => put(`/v1/yurt/plugin/${encodeURIComponent(plugin.Name)}/reload`),
    then: state.reload,
    done: "The plugin was reloaded",
  });
  return html`
    <${Section} title="Plugins of this agent">
      <${Loaded} state=${state}>${(found) => {
        const rows = Array.isArray(found) ? found : (found?.Plugins ?? []);
        return rows.length
          ? html`<ul class="list">
            ${rows.map((plugin) =>
            html`<li key=${plugin.Name}><strong>${plain(plugin.Name)}
            </strong> <span class="dim">${plain([plugin.Type, plugin.Kind, plugin.Version, plugin.Package].filter(Boolean).join(", "))}
            </span><span class="right"><${Actions} actions=${[reload(plugin)]} /></span></li>`)}</ul>`
          : html`<${Empty}>None.<//>`;
      }}<//>
    <//>
  `;
}

const GARBAGE = {
  label: "Collect garbage",
  needs: ["management"],
  question: "Removes ended jobs, allocations, evaluations and nodes from the state at once.",
  command: command(["system", "gc"]),
  run: () => put("/v1/system/gc"),
  done: "Garbage is collected",
};
const SUMMARIES = {
  label: "Recount summaries",
  needs: ["management"],
  command: command(["system", "reconcile", "summaries"]),
  run: () => put("/v1/system/reconcile/summaries"),
  done: "The summaries were counted again",
};

export const Operator = () => html`
  <${Heading} title="Operator">
    <div class="actions"><a class="button" href="/ui/monitor">Log</a><a class="button" href="/ui/events">Events</a>
    <a class="button" href="/ui/metrics">Metrics</a></div><${Actions} actions=${[GARBAGE, SUMMARIES]} /><//>
  <${Scheduler} /><${Keys} /><${Plugins} />
`;
