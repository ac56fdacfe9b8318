/** The first tab of a node: capacity, use, drain progress, drivers with their errors, volumes, cards, events. */
import { html } from "../../../vendor/preact.js";
import { get } from "../../core/api.js";
import { bytes, count, mebibytes, plain } from "../../core/format.js";
import { useData } from "../../core/load.js";
import { nodeAllocsTopic } from "../../core/live.js";
import { href } from "../../core/router.js";
import { Chart } from "../../parts/charts.js";
import { Empty, Facts, Section, Time, When } from "../../parts/page.js";
import { CardStatus, Meter, Status } from "../../parts/status.js";
import { DeviceCharts, devicesOf, Minutes, pastOf, shownOf, useSamples } from "../../parts/usage.js";

function Capacity({ row }) {
  const bars = [
    ["CPU", row.CPUUsed, row.CPU, (value) => `${count(value)} MHz`],
    ["Memory", row.MemoryUsedMB, row.MemoryMB, mebibytes],
    ["Disk", row.DiskUsedMB, row.DiskMB, mebibytes],
    ["Cards", row.CardsUsed, row.Cards, count],
    ["Card memory", row.VRAMUsedMB, row.VRAMMB, mebibytes],
  ];
  return html`
    <${Section} title="Booked" note="by allocations, of what the node offers">
      <div class="bars">${bars
        .filter(([, , total]) => Number(total) > 0)
        .map(
          ([label, used, total, show]) => html`
        <div key=${label}><span>${label}</span>
          <${Meter} label=${label} used=${used} total=${total}
          text=${`${/** @type {any} */ (show)(used)} of ${/** @type {any} */ (show)(total)}`} /></div>`,
        )}</div>
    <//>
  `;
}

function Use({ node }) {
  const mhz = node.NodeResources?.Cpu?.CpuShares || 1;
  const { samples, problem } = useSamples(
    async (signal) => {
      const stats = await get("/v1/client/stats", { node_id: node.ID }, { signal });
      return {
        cpu: 100 - (stats.CPU ?? []).reduce((sum, core) => sum + core.Idle, 0) / Math.max(1, stats.CPU?.length ?? 1),
        memory: stats.Memory?.Used,
        total: stats.Memory?.Total,
        disks: stats.DiskStats,
        devices: devicesOf(stats.DeviceStats),
      };
    },
    async (signal) => {
      const history = await get(`/v1/yurt/node/${node.ID}/usage`, {}, { signal });
      return pastOf([history.Host ?? {}]).map((sample) => ({ ...sample, cpu: ((sample.cpu ?? 0) / mhz) * 100 }));
    },
    [node.ID],
  );
  const last = /** @type {any} */ (samples.at(-1) ?? {});
  const shown = shownOf(samples);
  return html`
    <${Section} title="Use of the host" note=${problem} tools=${html`<${Minutes} />`}>
      <div class="charts">
        <${Chart} label="CPU (%)" samples=${shown} name="cpu" limit=${100} text=${`${Math.round(last.cpu ?? 0)} %`} />
        <${Chart} label="Memory (MiB)" scale=${1 / 1048576} samples=${shown} name="memory"
          limit=${Math.round((last.total ?? 0) / 1048576)} text=${`${bytes(last.memory ?? 0)} of ${bytes(last.total ?? 0)}`} />
        <${DeviceCharts} samples=${shown} /></div>
      ${(last.disks ?? []).slice(0, 4)
        .map((disk) =>
        html`<p key=${disk.Mountpoint}>
        <${Meter} label=${`Disk ${disk.Mountpoint}`} used=${disk.Used} total=${disk.Size}
        text=${`${disk.Mountpoint}: ${bytes(disk.Used)} of ${bytes(disk.Size)}`} /></p>`)}
    <//>
  `;
}

/** The allocations that a draining node still has to move. */
function Drain({ node }) {
  const state = useData(
    (signal) => get("/v1/yurt/allocations", { namespace: "*", node: node.ID, per_page: 1, facets: "Status,JobType" }, { signal }),
    [node.ID],
    [nodeAllocsTopic(node.ID)],
  );
  const counts = Object.fromEntries(state.data?.Facets?.Status?.Values ?? []);
  const left = (counts.running ?? 0) + (counts.starting ?? 0) + (counts.unhealthy ?? 0) + (counts.restarting ?? 0);
  const moving = counts.stopping ?? 0;
  const spec = node.DrainStrategy;
  return html`
    <${Section} title="Draining"
      note=${spec.ForceDeadline && !spec.ForceDeadline.startsWith("0001") ? html`forced <${When} at=${new Date(spec.ForceDeadline)} />`
      : "no deadline"}>
      <${Facts} facts=${[
        ["Started", html`<${Time} at=${new Date(spec.StartedAt)} />`],
        ["Remaining", count(left)],
        ["Migrating", count(moving)],
        ["Ended", count((counts.complete ?? 0) + (counts.stopped ?? 0) + (counts.failed ?? 0))],
        ["System jobs", spec.IgnoreSystemJobs ? "left running" : "drained last"],
      ]} />
    <//>
  `;
}

function Drivers({ node }) {
  const drivers = Object.entries(node.Drivers ?? {})
    .filter(([, driver]) => driver.Detected)
    .sort(([a], [b]) => a.localeCompare(b));
  return html`
    <${Section} title="Drivers">
      ${
        drivers.length
          ? html`<ul class="list">${drivers.map(
              ([name, driver]) => html`
        <li key=${name}>
          <details><summary><${Status} status=${driver.Healthy ? "healthy" : "unhealthy"} /> <strong>${plain(name)}
          </strong> <span class="dim">${plain(driver.HealthDescription)}</span></summary>
          <${Facts} facts=${Object.entries(driver.Attributes ?? {})} /></details></li>`,
            )}</ul>`
          : html`<${Empty}>No driver was found.<//>`
      }
    <//>
  `;
}

function Card({ card }) {
  return html`
    <div class="card">
      <strong>${plain(card.Name)}</strong> <${CardStatus} card=${card} />
      ${card.Problem && html`<p class="bad">${plain(card.Problem)}</p>`}
      ${card.VRAMMB > 0
        && html`<${Meter} label="Memory booked" used=${card.VRAMUsedMB} total=${card.VRAMMB}
        text=${`${mebibytes(card.VRAMUsedMB)} of ${mebibytes(card.VRAMMB)}`} />`}
      <small class="dim">${plain(card.Bus || card.ID)}</small>
      <ul class="list">
        ${(card.Holders ?? [])
        .map((holder, at) =>
        html`<li key=${at}>
        ${holder.AllocID ? html`<a href=${href(["allocations", holder.AllocID])}>${plain(holder.JobID)} ${plain(holder.Task)}</a>`
        : "held by a job of another namespace"} <span class="dim">${holder.VRAMMB ? mebibytes(holder.VRAMMB) : ""}</span></li>`)}</ul>
    </div>
  `;
}

const Cards = ({ cards }) =>
  cards?.length
    ? html`<${Section} title="Cards"><div class="cards">${cards.map((card) => html`<${Card} key=${card.ID} card=${card} />`)}</div><//>`
    : null;

function Volumes({ node }) {
  const volumes = Object.entries(node.HostVolumes ?? {});
  if (!volumes.length) return null;
  return html`<${Section}
    title="Host volumes">
    <ul class="list">
    ${volumes.map(
    ([name, volume]) =>
    html`<li key=${name}><strong>${volume.ID ? html`<a href=${href(["storage", "host", volume.ID])}>${plain(name)}</a>` : plain(name)}
    </strong> <code>${plain(volume.Path)}</code> <span class="dim">${volume.ReadOnly ? "read only" : "read and write"}</span></li>`)}</ul>
    <//>`;
}

export function NodeSummary({ node, row }) {
  const events = [...(node.Events ?? [])].reverse();
  return html`
    ${node.StatusDescription && html`<p class="dim">${plain(node.StatusDescription)}</p>`}
    ${node.DrainStrategy && html`<${Drain} node=${node} />`}
    <div class="grid"><${Capacity} row=${row} />${node.Status === "ready" && html`<${Use} node=${node} />`}<${Drivers} node=${node} />
      <${Volumes} node=${node} /></div>
    <${Cards} cards=${row.CardList} />
    <${Section} title="Events">
      ${events.length
        ? html`<ol class="timeline">
        ${events.map(
        (event, at) =>
        html`<li key=${at}
        class=${/unhealthy|missed|down|lost/i.test(event.Message) ? "bad" : ""}><b><${Time} at=${new Date(event.Timestamp)} />
        </b> <span class="dim">${plain(event.Subsystem)}</span> ${plain(event.Message)}</li>`)}</ol>` : html`<${Empty}>No events.<//>`}
    <//>
    <${Section} title="Facts">
      <${Facts} facts=${[
        ["Address", node.HTTPAddr],
        ["Class", node.NodeClass],
        ["Version", node.Attributes?.["nomad.version"]],
        [
          "System",
          [node.Attributes?.["os.name"], node.Attributes?.["os.version"], node.Attributes?.["cpu.arch"]].filter(Boolean).join(" "),
        ],
        ["Cores", row.Cores ? `${row.CoresUsed} of ${row.Cores} booked` : ""],
        ["Status updated", html`<${When} at=${node.StatusUpdatedAt * 1e9} />`],
      ]} />
    <//>
  `;
}
