/** What an allocation, a task or a node uses, as live charts beside what it booked: never one taken for the other. */
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { get, isAbort } from "../core/api.js";
import { bytes, mebibytes } from "../core/format.js";
import { useInterval } from "../core/load.js";
import { Section } from "./page.js";
import { Chart } from "./charts.js";

const STEP_S = 2;
const POINTS_MAX = 500;

/** Samples of `read`, taken while the page is visible. @returns {{samples: any[], problem: string}} */
export function useSamples(read, inputs) {
  const samples = useRef(/** @type {any[]} */ ([]));
  const [, setTurn] = useState(0);
  const [problem, setProblem] = useState("");
  const controller = useRef(new AbortController());
  const take = async () => {
    try {
      const sample = await read(controller.current.signal);
      samples.current = [...samples.current, { at: Date.now() / 1000, ...sample }].slice(-POINTS_MAX);
      setProblem("");
    } catch (error) {
      if (isAbort(error)) return;
      setProblem(/** @type {Error} */ (error).message);
    }
    setTurn((before) => before + 1);
  };
  useEffect(() => {
    controller.current = new AbortController();
    samples.current = [];
    take();
    return () => controller.current.abort();
  }, inputs);
  useInterval(take, STEP_S);
  return { samples: samples.current, problem };
}

const cards = (stats) =>
  (stats.DeviceStats ?? []).flatMap((group) =>
    Object.entries(group.InstanceStats ?? {}).map(([id, stat]) => ({ id, name: group.Name, summary: stat.Summary })),
  );

/** @param {{alloc: any, task: string}} props `task` "" for the whole allocation. */
export function UsageCharts({ alloc, task }) {
  const running = alloc.ClientStatus === "running";
  const { samples, problem } = useSamples(
    async (signal) => {
      if (!running) return {};
      const stats = await get(`/v1/client/allocation/${alloc.ID}/stats`, { namespace: alloc.Namespace }, { signal });
      const usage = task ? (stats.Tasks?.[task]?.ResourceUsage ?? {}) : (stats.ResourceUsage ?? {});
      return { cpu: usage.CpuStats?.TotalTicks, memory: usage.MemoryStats?.RSS || usage.MemoryStats?.Usage, cards: cards(usage) };
    },
    [alloc.ID, task, running],
  );
  const booked = Object.entries(alloc.AllocatedResources?.Tasks ?? {})
    .filter(([name]) => !task || name === task)
    .map(([, each]) => /** @type {any} */ (each));
  const cpu = booked.reduce((sum, each) => sum + (each.Cpu?.CpuShares ?? 0), 0);
  const memory = booked.reduce((sum, each) => sum + (each.Memory?.MemoryMB ?? 0), 0);
  const last = samples.at(-1) ?? {};
  if (!running) return null;
  return html`
    <${Section} title="Use" note=${problem || "last minutes; the line above is what is booked"}>
      <div class="charts">
        <${Chart} label="CPU (MHz)" unit="MHz" samples=${samples} name="cpu" limit=${cpu}
          text=${`${Math.round(last.cpu ?? 0)} of ${cpu} MHz booked`} />
        <${Chart} label="Memory" unit="MiB" scale=${1 / 1048576} samples=${samples} name="memory" limit=${memory}
          text=${`${bytes(last.memory ?? 0)} of ${mebibytes(memory)} booked`} />
      </div>
      ${(last.cards ?? [])
        .map((card) =>
        html`<p key=${card.id}>${card.name} <code>${card.id}
        </code>: ${card.summary?.IntNumeratorVal ?? card.summary?.StringVal ?? ""} ${card.summary?.Unit ?? ""} ${card.summary?.Desc ?? ""}
        </p>`)}
    <//>
  `;
}
