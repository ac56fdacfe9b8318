/**
 * What an allocation, a task or a node uses, as live charts beside what it booked: never one taken for the other.
 *
 * The past comes from the client, which keeps a sample of each task, device and host every ten seconds for 15 minutes; the
 * present is asked for while the page is visible. A reader chooses how many minutes are shown.
 */
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { get, isAbort } from "../core/api.js";
import { bytes, mebibytes, plain } from "../core/format.js";
import { useInterval } from "../core/load.js";
import { choose, settings } from "../core/settings.js";
import { Section } from "./page.js";
import { Chart } from "./charts.js";

const STEP_S = 2;
const POINTS_MAX = 600;
const MINUTES_MAX = 15;
const NANOSECONDS = 1e9;
const BUSY = "GPU utilization";

/**
 * @typedef {{name: string, memory: number|null, of: number, busy: number|null}} DeviceSample memory in MiB, `of` 0 where it is not known.
 * @typedef {{at: number, cpu?: number|null, memory?: number|null, devices?: Record<string, DeviceSample>}} Sample at: Unix seconds.
 */

const numberOf = (value) => value?.IntNumeratorVal ?? value?.FloatNumeratorVal ?? null;

/** The devices of an answer of `stats`, by id. @returns {Record<string, DeviceSample>} */
export function devicesOf(groups) {
  const found = /** @type {Record<string, DeviceSample>} */ ({});
  for (const group of groups ?? [])
    for (const [id, stat] of Object.entries(group.InstanceStats ?? {})) {
      const summary = stat.Summary ?? {};
      found[id] = {
        name: group.Name,
        memory: summary.Unit === "MiB" ? numberOf(summary) : null,
        of: summary.IntDenominatorVal ?? summary.FloatDenominatorVal ?? 0,
        busy: numberOf(stat.Stats?.Attributes?.[BUSY]),
      };
    }
  return found;
}

/** Kept series, added up, as samples in the order of time. @param {any[]} series of tasks, or of the host. @returns {Sample[]} */
export function pastOf(series) {
  const found = /** @type {Map<number, any>} */ (new Map());
  const at = (time) => {
    if (!found.has(time)) found.set(time, { at: time / NANOSECONDS, devices: {} });
    return found.get(time);
  };
  for (const each of series) {
    (each.At ?? []).forEach((time, number) => {
      const sample = at(time);
      sample.cpu = (sample.cpu ?? 0) + (each.CPU?.[number] ?? 0);
      sample.memory = (sample.memory ?? 0) + (each.MemoryBytes?.[number] ?? 0);
    });
    for (const [id, device] of Object.entries(each.Devices ?? {}))
      device.At.forEach((time, number) => {
        at(time).devices[id] = { name: device.Name, memory: device.MemoryMB[number], of: 0, busy: device.BusyPercent[number] };
      });
  }
  return [...found.values()].sort((a, b) => a.at - b.at);
}

/**
 * Samples of `read`, taken while the page is visible, after those of `past`.
 * @param {(signal: AbortSignal) => Promise<any>} read @param {(signal: AbortSignal) => Promise<Sample[]>} past
 * @returns {{samples: Sample[], problem: string}}
 */
export function useSamples(read, past, inputs) {
  const samples = useRef(/** @type {Sample[]} */ ([]));
  const [, setTurn] = useState(0);
  const [problem, setProblem] = useState("");
  const controller = useRef(new AbortController());
  const take = async () => {
    const { signal } = controller.current;
    try {
      const sample = await read(signal);
      if (signal.aborted) return;
      samples.current = [...samples.current, { at: Date.now() / 1000, ...sample }].slice(-POINTS_MAX);
      setProblem("");
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      setProblem(/** @type {Error} */ (error).message);
    }
    setTurn((before) => before + 1);
  };
  const begin = async () => {
    const { signal } = controller.current;
    const history = await past(signal).catch(() => []); // Without a past the charts begin now.
    if (!signal.aborted) samples.current = history;
    await take();
  };
  useEffect(() => {
    controller.current = new AbortController();
    samples.current = [];
    begin();
    return () => controller.current.abort();
  }, inputs);
  useInterval(take, STEP_S);
  return { samples: samples.current, problem };
}

/** How many minutes the charts show. */
export function Minutes() {
  const { minutes } = settings.value;
  return html`<label class="right minutes">Last ${minutes} min
    <input type="range" min="1" max=${MINUTES_MAX} step="1" value=${minutes} aria-label="Minutes shown in charts"
      onInput=${(event) => choose({ minutes: Number(event.target.value) })} /></label>`;
}

/** The samples of the chosen minutes. @param {Sample[]} samples */
export function shownOf(samples) {
  const from = Date.now() / 1000 - settings.value.minutes * 60;
  return samples.filter((sample) => sample.at >= from);
}

/** Two charts for each device: its memory and how busy it is. @param {{samples: Sample[], booked?: Record<string, number>}} props */
export function DeviceCharts({ samples, booked = {} }) {
  const last = samples.at(-1)?.devices ?? {};
  return Object.entries(last).map(([id, device]) => {
    const series = samples.map((sample) => ({ at: sample.at, ...sample.devices?.[id] }));
    const limit = booked[id] || device.of;
    const name = plain(`${device.name} ${id.slice(0, 12)}`);
    const share = limit ? ` of ${mebibytes(limit)}${booked[id] ? " booked" : ""}` : "";
    return html`
      ${device.memory !== null && html`<${Chart} key=${`${id} memory`} label=${`${name}: memory (MiB)`} samples=${series} name="memory"
        limit=${limit} text=${`${mebibytes(device.memory)}${share}`} />`}
      ${device.busy !== null && html`<${Chart} key=${`${id} busy`} label=${`${name}: busy (%)`} samples=${series} name="busy"
        limit=${100} text=${`${Math.round(device.busy)} %`} />`}
    `;
  });
}

/** What an allocation or one of its tasks booked: MHz, MiB, and MiB of each device that it shares. */
function bookedBy(alloc, task) {
  const chosen = Object.entries(alloc.AllocatedResources?.Tasks ?? {})
    .filter(([name]) => !task || name === task)
    .map(([, each]) => /** @type {any} */ (each));
  const devices = chosen.flatMap((each) => each.Devices ?? []).filter((each) => each.MemoryMB > 0);
  return {
    cpu: chosen.reduce((sum, each) => sum + (each.Cpu?.CpuShares ?? 0), 0),
    memory: chosen.reduce((sum, each) => sum + (each.Memory?.MemoryMB ?? 0), 0),
    devices: Object.fromEntries(devices.flatMap((each) => (each.DeviceIDs ?? []).map((id) => [id.split("::")[0], each.MemoryMB]))),
  };
}

/** @param {{alloc: any, task: string}} props `task` "" for the whole allocation. */
export function UsageCharts({ alloc, task }) {
  const running = alloc.ClientStatus === "running";
  const { samples, problem } = useSamples(
    async (signal) => {
      if (!running) return {};
      const stats = await get(`/v1/client/allocation/${alloc.ID}/stats`, { namespace: alloc.Namespace }, { signal });
      const usage = task ? (stats.Tasks?.[task]?.ResourceUsage ?? {}) : (stats.ResourceUsage ?? {});
      return {
        cpu: usage.CpuStats?.TotalTicks,
        memory: usage.MemoryStats?.RSS || usage.MemoryStats?.Usage,
        devices: devicesOf(usage.DeviceStats),
      };
    },
    async (signal) => {
      if (!running) return [];
      const history = await get(`/v1/yurt/allocation/${alloc.ID}/usage`, { namespace: alloc.Namespace, task }, { signal });
      return pastOf(Object.values(history.Tasks ?? {}));
    },
    [alloc.ID, task, running],
  );
  if (!running) return null;
  const booked = bookedBy(alloc, task);
  const shown = shownOf(samples);
  const last = samples.at(-1) ?? { at: 0 };
  return html`
    <${Section} title="Use" note=${problem || "the line above is what is booked"} tools=${html`<${Minutes} />`}>
      <div class="charts">
        <${Chart} label="CPU (MHz)" samples=${shown} name="cpu" limit=${booked.cpu}
          text=${`${Math.round(last.cpu ?? 0)} of ${booked.cpu} MHz booked`} />
        <${Chart} label="Memory (MiB)" scale=${1 / 1048576} samples=${shown} name="memory" limit=${booked.memory}
          text=${`${bytes(last.memory ?? 0)} of ${mebibytes(booked.memory)} booked`} />
        <${DeviceCharts} samples=${shown} booked=${booked.devices} />
      </div>
    <//>
  `;
}
