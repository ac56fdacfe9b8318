/** The pages: pattern, title, and the module that is loaded when the page is first shown. The first match counts. */

import { get } from "./core/api.js";
import { match } from "./core/router.js";

/** @typedef {{pattern: string, load: () => Promise<any>, page: string, section?: string}} Route */

const jobs = () => import("./pages/jobs.js");
const job = () => import("./pages/job.js");
const allocs = () => import("./pages/allocations.js");
const alloc = () => import("./pages/allocation.js");
const nodes = () => import("./pages/nodes.js");
const node = () => import("./pages/node.js");
const servers = () => import("./pages/servers.js");
const evaluations = () => import("./pages/evaluations.js");
const storage = () => import("./pages/storage.js");
const variables = () => import("./pages/variables.js");
const access = () => import("./pages/access.js");
const tools = () => import("./pages/tools.js");

/** @type {Route[]} */
export const ROUTES = [
  { pattern: "", load: () => import("./pages/overview.js"), page: "Overview", section: "overview" },
  { pattern: "jobs", load: jobs, page: "Jobs", section: "jobs" },
  { pattern: "jobs/run", load: () => import("./pages/run.js"), page: "Run", section: "jobs" },
  { pattern: "jobs/*rest", load: job, page: "Job", section: "jobs" },
  { pattern: "waiting", load: () => import("./pages/waiting.js"), page: "Waiting", section: "jobs" },
  { pattern: "what-if", load: () => import("./pages/job/what_if.js"), page: "WhatIf", section: "jobs" },
  { pattern: "allocations", load: allocs, page: "Allocations", section: "allocations" },
  { pattern: "allocations/:id", load: alloc, page: "Allocation", section: "allocations" },
  { pattern: "allocations/:id/:task", load: alloc, page: "Task", section: "allocations" },
  { pattern: "nodes", load: nodes, page: "Nodes", section: "nodes" },
  { pattern: "clients", load: nodes, page: "Nodes", section: "nodes" },
  { pattern: "nodes/:id", load: node, page: "Node", section: "nodes" },
  { pattern: "clients/:id", load: node, page: "Node", section: "nodes" },
  { pattern: "servers", load: servers, page: "Servers", section: "servers" },
  { pattern: "topology", load: () => import("./pages/topology.js"), page: "Topology", section: "topology" },
  { pattern: "cards", load: () => import("./pages/cards.js"), page: "Cards", section: "topology" },
  { pattern: "evaluations", load: evaluations, page: "Evaluations", section: "evaluations" },
  { pattern: "evaluations/:id", load: evaluations, page: "Evaluation", section: "evaluations" },
  { pattern: "deployments", load: () => import("./pages/deployments.js"), page: "Deployments", section: "deployments" },
  { pattern: "services", load: () => import("./pages/services.js"), page: "Services", section: "services" },
  { pattern: "services/:name", load: () => import("./pages/services.js"), page: "Service", section: "services" },
  { pattern: "storage", load: storage, page: "Storage", section: "storage" },
  { pattern: "storage/:kind/:id", load: storage, page: "Volume", section: "storage" },
  { pattern: "variables", load: variables, page: "Variables", section: "variables" },
  { pattern: "variables/*path", load: variables, page: "Variable", section: "variables" },
  { pattern: "namespaces", load: () => import("./pages/namespaces.js"), page: "Namespaces", section: "namespaces" },
  { pattern: "pools", load: () => import("./pages/pools.js"), page: "Pools", section: "pools" },
  { pattern: "access", load: access, page: "Access", section: "access" },
  { pattern: "operator", load: () => import("./pages/operator.js"), page: "Operator", section: "operator" },
  { pattern: "monitor", load: tools, page: "Monitor", section: "operator" },
  { pattern: "events", load: tools, page: "Events", section: "operator" },
  { pattern: "metrics", load: tools, page: "Metrics", section: "operator" },
  { pattern: "settings", load: () => import("./pages/settings.js"), page: "Settings", section: "settings" },
  { pattern: "sign-in", load: () => import("./pages/sign_in.js"), page: "SignIn", section: "" },
];

/** @returns {{route: Route, parts: Record<string, string>}|null} */
export function routeOf(path) {
  for (const route of ROUTES) {
    const parts = match(route.pattern, path);
    if (parts) return { route, parts };
  }
  return null;
}

/** Modules of pages that were loaded, by how they are loaded. @type {Map<Route["load"], any>} */
const modules = new Map();

/** The module of a page if it was loaded before. @param {Route} route */
export const loaded = (route) => modules.get(route.load);

/** Rejects with a passing error (`retry.js`) only while the agent does not answer. @param {Route} route */
export async function loadPage(route) {
  const load = async () => void modules.set(route.load, await route.load());
  // A browser words a file that is not there as it words no answer: what fails again beside an answer does not pass.
  await load().catch(() => get("/v1/regions").then(load));
}

/** The menu: section, label, address, second key after `g`, and the right without which it is not shown. */
export const MENU = [
  { id: "overview", label: "Overview", to: "/ui/", key: "o" },
  { id: "jobs", label: "Jobs", to: "/ui/jobs", key: "j" },
  { id: "allocations", label: "Allocations", to: "/ui/allocations", key: "l" },
  { id: "deployments", label: "Deployments", to: "/ui/deployments", key: "d" },
  { id: "evaluations", label: "Evaluations", to: "/ui/evaluations", key: "e" },
  { id: "services", label: "Services", to: "/ui/services", key: "i" },
  { id: "nodes", label: "Nodes", to: "/ui/nodes", key: "c", needs: "node:read" },
  { id: "topology", label: "Topology", to: "/ui/topology", key: "t", needs: "node:read" },
  { id: "storage", label: "Storage", to: "/ui/storage", key: "r" },
  { id: "variables", label: "Variables", to: "/ui/variables", key: "v", needs: "variables:list" },
  { id: "servers", label: "Servers", to: "/ui/servers", key: "s", needs: "node:read" },
  { id: "namespaces", label: "Namespaces", to: "/ui/namespaces", key: "n" },
  { id: "pools", label: "Node pools", to: "/ui/pools", key: "p" },
  { id: "access", label: "Access control", to: "/ui/access", key: "a" },
  { id: "operator", label: "Operator", to: "/ui/operator", key: "x", needs: "agent:read" },
];
