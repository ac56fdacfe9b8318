/**
 * The queues of node pools: place, reason and expected start of the batch jobs that wait in them (`/v1/queue/jobs`).
 *
 * A forecast changes with time alone, so it is asked for again every `STEP_S` while the page is visible. Pools without a queue
 * answer with no jobs.
 */
import { get } from "./api.js";
import { useData, useInterval } from "./load.js";

const STEP_S = 10;
const POOLS_MAX = 20;

async function load(pools, signal) {
  const requests = pools.slice(0, POOLS_MAX).map(async (pool) => {
    const { Workloads } = await get("/v1/queue/jobs", { node_pool: pool, namespace: "*", sort: "priority" }, { signal });
    return (Workloads ?? []).map((job) => ({ ...job, Pool: pool, Length: Workloads.length }));
  });
  const found = await Promise.all(requests);
  return found.flat();
}

/** @param {string[]} pools @returns {{jobs: any[], placeOf: (namespace: string, id: string) => any}} jobs in their order. */
export function useQueues(pools) {
  const state = useData((signal) => load(pools, signal), [pools.join("\n")]);
  useInterval(() => pools.length && state.reload(), STEP_S);
  const jobs = state.data ?? [];
  return { jobs, placeOf: (namespace, id) => jobs.find((job) => job.Namespace === namespace && job.JobID === id) };
}
