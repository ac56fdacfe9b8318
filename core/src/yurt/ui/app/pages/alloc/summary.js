/** The first tab of an allocation: its tasks, what happened, ports, checks, and what it replaced or preempted. */
import { html } from "../../../vendor/preact.js";
import { get } from "../../core/api.js";
import { count, mebibytes, plain, short } from "../../core/format.js";
import { useData, useInterval } from "../../core/load.js";
import { href } from "../../core/router.js";
import { Id } from "../../parts/copy.js";
import { Facts, Section, Time, When } from "../../parts/page.js";
import { Status } from "../../parts/status.js";
import { Events, Lifecycle } from "../../parts/timeline.js";
import { UsageCharts } from "../../parts/usage.js";

const CHECKS_S = 5;

function Tasks({ alloc }) {
  const group = (alloc.Job?.TaskGroups ?? []).find((each) => each.Name === alloc.TaskGroup);
  return html`
    <${Section} title="Tasks">
      <div class="scroll" tabindex="0"><table class="plain-table">
        <thead><tr><th>Task</th><th>State</th><th>Last event</th><th>Restarts</th><th>Books</th><th></th></tr></thead>
        <tbody>${Object.keys(alloc.TaskStates ?? alloc.AllocatedResources?.Tasks ?? {}).map((name) => {
          const state = alloc.TaskStates?.[name] ?? {};
          const last = (state.Events ?? []).at(-1);
          const booked = alloc.AllocatedResources?.Tasks?.[name];
          const driver = group?.Tasks?.find((task) => task.Name === name)?.Driver ?? "";
          return html`<tr key=${name}>
            <td><a href=${href(["allocations", alloc.ID, name])}>${plain(name)}</a> <span class="dim">${plain(driver)}</span></td>
              <td><${Status} status=${state.Failed ? "failed" : (state.State ?? "pending")} /></td>
            <td class="text">${last ? html`${plain(last.Type)}: ${plain(last.DisplayMessage)} <${When} at=${last.Time} />` : ""}</td>
              <td>${state.Restarts ?? 0}</td>
            <td class="text">${booked ? `${count(booked.Cpu?.CpuShares)} MHz, ${mebibytes(booked.Memory?.MemoryMB)}${(booked.Devices ?? [])
              .map((device) => `, ${device.DeviceIDs?.length} × ${plain(device.Name)}`).join("")}` : ""}</td>
            <td><a href=${href(["allocations", alloc.ID, name], { tab: "logs" })}>Logs</a></td></tr>`;
        })}</tbody></table></div>
    <//>
  `;
}

function Ports({ alloc }) {
  const ports = alloc.AllocatedResources?.Shared?.Ports ?? [];
  if (!ports.length) return null;
  return html`
    <${Section} title="Ports">
      <ul class="list">${ports.map((port) => {
        const address = `${port.HostIP?.includes(":") ? `[${port.HostIP}]` : port.HostIP}:${port.Value}`;
        return html`<li
          key=${port.Label}><strong>${plain(port.Label)}
          </strong> <a href=${`http://${address}/`} target="_blank" rel="noopener noreferrer">${plain(address)}
          </a> ${port.To ? html`<span class="dim">to ${port.To} in the task</span>` : ""}</li>`;
      })}</ul>
    <//>
  `;
}

function Checks({ alloc }) {
  const state = useData(
    (signal) => get(`/v1/client/allocation/${alloc.ID}/checks`, { namespace: alloc.Namespace }, { signal }),
    [alloc.ID, alloc.ModifyIndex],
  );
  useInterval(state.reload, CHECKS_S);
  const checks = Object.values(state.data ?? {});
  if (!checks.length) return null;
  return html`
    <${Section} title="Checks">
      <ul class="list">${checks.map(
        (check) => html`
        <li key=${check.ID}>
          <${Status} status=${check.Status === "success" ? "passing" : check.Status === "failure" ? "critical" : check.Status} /> <strong>
          ${plain(check.Check)}</strong> <span class="dim">of ${plain(check.Service)}</span>
          <code>${plain(check.Output)}</code><span class="right"><${When} at=${check.Timestamp * 1e9} /></span></li>`,
      )}</ul>
    <//>
  `;
}

const AllocLink = ({ id }) => html`<a href=${href(["allocations", id])}>${short(id)}</a>`;

/** That the devices of the allocation are not used, and what follows from that. */
function Idle({ idle }) {
  if (!idle?.IdleFor && !idle?.Action) return null;
  return html`<p class="dim">
    ${idle.IdleFor ? html`Devices idle since <${When} at=${idle.Since} />: ${plain(idle.Text)}. ` : null}
    ${idle.Action
      ? html`Ended for that (${idle.Action}): ${plain(idle.Reason)}`
      : idle.EndsAt ? html`Ends <${When} at=${idle.EndsAt} />: ${plain(idle.Reason)}` : null}
  </p>`;
}

/** What this allocation replaced, and what replaced or preempted it. */
function Relations({ alloc }) {
  const attempts = alloc.RescheduleTracker?.Events ?? [];
  const preempted = alloc.PreemptedAllocations ?? [];
  if (
    !attempts.length &&
    !preempted.length &&
    !alloc.PreemptedByAllocation &&
    !alloc.NextAllocation &&
    !alloc.PreviousAllocation &&
    !alloc.FollowupEvalID
  )
    return null;
  return html`
    <${Section} title="Before and after">
      <ul class="timeline">
        ${attempts.map(
          (event) => html`
          <li key=${event.PrevAllocID}
          class="bad"><b><${Time} at=${event.RescheduleTime} />
          </b> rescheduled from <${AllocLink} id=${event.PrevAllocID} /> on node <a
          href=${href(["nodes", event.PrevNodeID])}>${short(event.PrevNodeID)}</a></li>`)}
        ${!attempts.length && alloc.PreviousAllocation && html`<li>replaces <${AllocLink} id=${alloc.PreviousAllocation} /></li>`}
        ${preempted.map((id) => html`<li key=${id}>preempted <${AllocLink} id=${id} /></li>`)}
        ${alloc.PreemptedByAllocation && html`<li class="bad">preempted by <${AllocLink} id=${alloc.PreemptedByAllocation} /></li>`}
        ${alloc.NextAllocation && html`<li class="good">replaced by <${AllocLink} id=${alloc.NextAllocation} /></li>`}
        ${alloc.FollowupEvalID
          && html`<li>will be tried again by evaluation <a
          href=${href(["evaluations", alloc.FollowupEvalID])}>${short(alloc.FollowupEvalID)}</a></li>`}
      </ul>
    <//>
  `;
}

export function AllocationSummary({ alloc, row }) {
  const group = (alloc.Job?.TaskGroups ?? []).find((each) => each.Name === alloc.TaskGroup);
  const events = Object.entries(alloc.TaskStates ?? {})
    .flatMap(([task, state]) => (state.Events ?? []).map((event) => ({ ...event, task })))
    .sort((a, b) => b.Time - a.Time);
  const health = alloc.DeploymentStatus;
  return html`
    ${row.Reason && html`<p class="dim">${plain(row.Reason)}</p>`}
    <${Idle} idle=${alloc.Idle} />
    <${Tasks} alloc=${alloc} />
    <div class="grid">
      <${Section} title="Lifecycle"><${Lifecycle} group=${group} states=${alloc.TaskStates ?? {}} /><//>
      <${UsageCharts} alloc=${alloc} task="" />
      <${Ports} alloc=${alloc} />
      <${Checks} alloc=${alloc} />
      <${Relations} alloc=${alloc} />
    </div>
    <${Section} title="What happened"><${Events} events=${events} /><//>
    <${Section} title="Facts">
      <${Facts} facts=${[
        ["ID", html`<${Id} id=${alloc.ID} />`],
        ["Group", alloc.TaskGroup],
        ["Namespace", alloc.Namespace],
        ["Job version", String(alloc.Job?.Version ?? "")],
        ["Desired", `${alloc.DesiredStatus}${alloc.DesiredDescription ? `: ${alloc.DesiredDescription}` : ""}`],
        ["Client status", `${alloc.ClientStatus}${alloc.ClientDescription ? `: ${alloc.ClientDescription}` : ""}`],
        ["Health", health?.Healthy === true ? "healthy" : health?.Healthy === false ? "unhealthy" : ""],
        ["Evaluation", html`<a href=${href(["evaluations", alloc.EvalID])}>${short(alloc.EvalID)}</a>`],
        ["Created", html`<${Time} at=${alloc.CreateTime} />`],
        ["Changed", html`<${Time} at=${alloc.ModifyTime} />`],
        [
          "Volumes",
          Object.entries(group?.Volumes ?? {})
            .map(([name, volume]) => `${name}: ${/** @type {any} */ (volume).Type} ${/** @type {any} */ (volume).Source}`)
            .join(", "),
        ],
      ]} />
    <//>
  `;
}
