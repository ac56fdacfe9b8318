/** Servers: who leads, their health as autopilot sees it, the configuration of the log. */
import { html } from "../../vendor/preact.js";
import { get, put, remove } from "../core/api.js";
import { command, plain } from "../core/format.js";
import { useData, useInterval } from "../core/load.js";
import { href } from "../core/router.js";
import { Actions } from "../parts/action.js";
import { Empty, Facts, Heading, Loaded, Section } from "../parts/page.js";
import { Status } from "../parts/status.js";
import { LocalTable } from "../parts/table.js";

const STEP_S = 5;

async function load(signal) {
  const quiet = (path) => get(path, {}, { signal }).catch(() => null);
  const [members, leader, health, raft] = await Promise.all([
    get("/v1/agent/members", {}, { signal }),
    quiet("/v1/status/leader"),
    quiet("/v1/operator/autopilot/health"),
    quiet("/v1/operator/raft/configuration"),
  ]);
  return { members: members.Members ?? [], leader, health, raft };
}

function rowsOf({ members, leader, health, raft }) {
  return members.map((member) => {
    const address = `${member.Addr}:${member.Tags?.port ?? ""}`;
    const report = (health?.Servers ?? []).find((server) => server.Name === member.Name || server.Address === address);
    const peer = (raft?.Servers ?? []).find((server) => server.Node === member.Name || server.Address === address);
    return { ...member, address, report, peer, isLeader: report?.Leader ?? leader === address };
  });
}

/** What a server is to the log; nothing is known about one that is not alive. */
function roleOf({ isLeader, peer, Status: status }) {
  if (isLeader) return "leader";
  if (status !== "alive") return "";
  return peer && !peer.Voter ? "learner" : "follower";
}

const COLUMNS = [
  {
    id: "name",
    title: "Server",
    value: (row) => row.Name,
    size: "minmax(8rem, 2fr)",
    cell: (row) => plain(row.Name),
  },
  {
    id: "role",
    title: "Role",
    value: (row) => roleOf(row),
    size: "4.5rem",
    cell: (row) => (row.isLeader ? html`<strong class="good">leader</strong>` : roleOf(row)),
  },
  { id: "status", title: "Status", value: (row) => row.Status, size: "5.5rem", cell: (row) => html`<${Status} status=${row.Status} />` },
  {
    id: "health",
    title: "Health",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.report?.Healthy,
    size: "6.5rem",
    cell: (row) => (row.report ? html`<${Status} status=${row.report.Healthy ? "healthy" : "unhealthy"} />` : ""),
  },
  { id: "contact", title: "Last contact", from: /** @type {"lg"} */ ("lg"), size: "7rem", cell: (row) => plain(row.report?.LastContact) },
  {
    id: "index",
    title: "Last index",
    from: /** @type {"md"} */ ("md"),
    number: true,
    value: (row) => row.report?.LastIndex,
    size: "6rem",
    cell: (row) => row.report?.LastIndex ?? "",
  },
  {
    id: "address",
    title: "Address",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.address,
    size: "minmax(10.5rem, 1fr)",
    cell: (row) => plain(row.address),
  },
  {
    id: "region",
    title: "Region",
    from: /** @type {"lg"} */ ("lg"),
    value: (row) => row.Tags?.region,
    size: "5rem",
    cell: (row) => plain(row.Tags?.region),
  },
  {
    id: "version",
    title: "Version",
    from: /** @type {"md"} */ ("md"),
    value: (row) => row.Tags?.build,
    size: "5rem",
    cell: (row) => plain(row.Tags?.build),
  },
  { id: "monitor", title: "", size: "3rem", cell: (row) => html`<a href=${href(["monitor"], { server: row.Name })}>Log</a>` },
];

function transfer(rows, reload) {
  const options = rows
    .filter((row) => !row.isLeader && row.peer?.Voter && row.Status === "alive")
    .map((row) => [row.peer.ID, row.Name]);
  return {
    label: "Transfer leadership",
    needs: ["management"],
    unavailable: options.length ? "" : "There is no other server",
    danger: true,
    question: "Another server becomes the leader.",
    fields: [{ name: "id", label: "To", kind: "select", options, value: options[0]?.[0] ?? "" }],
    command: ({ id }) => command(["operator", "raft", "transfer-leadership"], { "peer-id": id }),
    run: ({ id }) => put("/v1/operator/raft/transfer-leadership", {}, { id }),
    then: reload,
    done: "Leadership is transferred",
  };
}

function removePeer(rows, reload) {
  const failed = rows.filter((row) => row.peer && row.Status !== "alive").map((row) => [row.peer.ID, row.Name]);
  return failed.length
    ? {
        label: "Remove server",
        needs: ["management"],
        danger: true,
        question: "Takes a server that is gone out of the log's group.",
        fields: [{ name: "id", label: "Server", kind: "select", options: failed, value: failed[0][0] }],
        command: ({ id }) => command(["operator", "raft", "remove-peer"], { "peer-id": id }),
        run: ({ id }) => remove("/v1/operator/raft/peer", { id }),
        then: reload,
        done: "The server was removed",
      }
    : null;
}

export function Servers() {
  const state = useData(load, []);
  useInterval(state.reload, STEP_S);
  return html`
    <${Heading} title="Servers">
      ${state.data && html`
      <${Actions} actions=${[transfer(rowsOf(state.data), state.reload), removePeer(rowsOf(state.data), state.reload)]} />`}<//>
    <${Loaded} state=${state}>${(data) => html`
      ${!data.leader && html`<p class="note bad" role="alert">No leader is known. Nothing can be changed until one is elected.</p>`}
      ${
        data.health &&
        html`<${Section} title="Autopilot"><${Facts} facts=${[
          ["Healthy", html`<${Status} status=${data.health.Healthy ? "healthy" : "unhealthy"} />`],
          ["Failures that are tolerated", String(data.health.FailureTolerance)],
        ]} /><//>`
      }
      <${LocalTable} name="servers" label="Servers" columns=${COLUMNS} rows=${rowsOf(data)} keyOf=${(row) => row.Name} sort="name"
        main=${true} search=${(row) => row.Name} empty=${html`<${Empty}>No servers are known.<//>`} />
    `}<//>
  `;
}
