/** The first tab of a task: state, use, events, volumes, metadata, identities. */
import { html } from "../../../vendor/preact.js";
import { command, plain } from "../../core/format.js";
import { href } from "../../core/router.js";
import { Command } from "../../parts/copy.js";
import { Empty, Facts, Section, Time } from "../../parts/page.js";
import { Status } from "../../parts/status.js";
import { Events } from "../../parts/timeline.js";
import { UsageCharts } from "../../parts/usage.js";

/** Whether something happened: the API has the year 1 for never. */
const isTime = (text) => Boolean(text) && !text.startsWith("0001");
/** What the state of a task says about its schedule and about what an operator chose. */
const PAUSED = { pause: "by an operator", scheduled_pause: "by its schedule", run: "no: an operator lets it run" };

/** When a task runs by its `schedule` block. */
function scheduleText(schedule) {
  const { Start, End, Timezone } = schedule?.Cron ?? {};
  return Start ? `starts at ${Start}, ends at ${End}${Timezone ? `, ${Timezone}` : ""}` : "";
}

export function TaskSummary({ alloc, task }) {
  const group = (alloc.Job?.TaskGroups ?? []).find((each) => each.Name === alloc.TaskGroup);
  const spec = group?.Tasks?.find((each) => each.Name === task);
  const state = alloc.TaskStates?.[task];
  if (!spec && !state) return html`<${Empty}>The allocation has no task "${plain(task)}".<//>`;
  const mounts = spec?.VolumeMounts ?? [];
  const identities = [spec?.Identity, ...(spec?.Identities ?? [])].filter(Boolean);
  const prestart = (group?.Tasks ?? []).filter((each) => each.Lifecycle?.Hook === "prestart" && each.Name !== task);
  return html`
    <${Section} title="Facts">
      <${Facts} facts=${[
        ["State", html`<${Status} status=${state?.Failed ? "failed" : (state?.State ?? "pending")} />`],
        ["Paused", PAUSED[state?.Paused ?? ""]],
        ["Schedule", scheduleText(spec?.Schedule)],
        ["Driver", spec?.Driver],
        ["Lifecycle", spec?.Lifecycle ? `${spec.Lifecycle.Hook}${spec.Lifecycle.Sidecar ? ", sidecar" : ""}` : "main"],
        ["Restarts", String(state?.Restarts ?? 0)],
        ["Started", isTime(state?.StartedAt) && html`<${Time} at=${new Date(state.StartedAt)} />`],
        ["Finished", isTime(state?.FinishedAt) && html`<${Time} at=${new Date(state.FinishedAt)} />`],
        ["User", spec?.User],
        ...Object.entries(spec?.Meta ?? {}).map(([name, value]) => [`meta ${name}`, String(value)]),
      ]} />
      ${prestart.length > 0
        && html`<p class="dim">Runs before it: ${prestart
        .map((each) =>
        html`<a key=${each.Name} href=${href(["allocations", alloc.ID, each.Name])}>${plain(each.Name)}
        </a> (${alloc.TaskStates?.[each.Name]?.State ?? "pending"}) `)}</p>`}
    <//>
    <div class="grid"><${UsageCharts} alloc=${alloc} task=${task} />
      ${mounts.length > 0
        && html`<${Section}
        title="Volumes">
        <ul class="list">
        ${mounts.map(
        (mount) => html`
        <li key=${mount.Volume}><strong>${plain(mount.Volume)}</strong> at <code>${plain(mount.Destination)}
        </code> <span
        class="dim">${group?.Volumes?.[mount.Volume]?.Type} ${plain(group?.Volumes?.[mount.Volume]?.Source)}
        ${mount.ReadOnly ? ", read only" : ""}</span></li>`)}</ul><//>`}
      ${identities.length > 0
        && html`<${Section}
        title="Identities">
        <ul class="list">
        ${identities.map(
        (each) => html`
        <li key=${each.Name}><strong>${plain(each.Name || "default")}
        </strong> <span
        class="dim">for ${plain((each.Audience ?? each.Aud ?? []).join(", "))}${each.File ? ", as a file" : ""}
        ${each.Env ? ", in the environment" : ""}</span></li>`)}</ul><//>`}
    </div>
    <${Section} title="What happened"><${Events} events=${[...(state?.Events ?? [])].reverse()} /><//>
    ${spec && html`
      <${Section} title="Configuration">
      <pre class="code"
      tabindex="0">
      ${plain(JSON.stringify(
      { Config: spec.Config, Env: spec.Env, Resources: spec.Resources, Templates: spec.Templates?.length,
      Artifacts: spec.Artifacts?.length }, null, 2))}</pre><//>`}
    <${Command} text=${command(["alloc", "status"], { verbose: true }, [alloc.ID])} />
  `;
}
