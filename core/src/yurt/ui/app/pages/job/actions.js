/** What can be done to a job. */
import { get, put, remove, segment } from "../../core/api.js";
import { command } from "../../core/format.js";
import { go, href } from "../../core/router.js";
import { startJob } from "../jobs.js";

const flagsOf = (job) => ({ namespace: job.Namespace === "default" ? "" : job.Namespace });
const pathOf = (job) => `/v1/job/${segment(job.ID)}`;

function stop(job) {
  return {
    label: "Stop",
    danger: true,
    needs: ["submit-job", "deregister-job"],
    namespace: job.Namespace,
    question: `Stops all allocations of the job "${job.ID}". With purge the job, its versions and its history are removed.`,
    fields: [{ name: "purge", label: "Purge", kind: "checkbox" }],
    command: ({ purge }) => command(["job", "stop"], { ...flagsOf(job), purge }, [job.ID]),
    run: ({ purge }) => remove(pathOf(job), { namespace: job.Namespace, purge }),
    then: () => /** @type {HTMLElement|null} */ (document.querySelector("#main h1"))?.focus(),
    done: `Job "${job.ID}" is being stopped`,
  };
}

function start(job, reload) {
  return {
    label: "Start",
    needs: ["submit-job", "register-job"],
    namespace: job.Namespace,
    question: `Registers "${job.ID}" again as it was.`,
    command: command(["job", "start"], flagsOf(job), [job.ID]),
    run: () => startJob(job),
    then: reload,
    done: `Job "${job.ID}" was started`,
  };
}

function purge(job) {
  return {
    label: "Purge",
    danger: true,
    needs: ["submit-job", "purge-job"],
    namespace: job.Namespace,
    question: `Removes the job "${job.ID}", its versions and its history.`,
    command: command(["job", "stop"], { ...flagsOf(job), purge: true }, [job.ID]),
    run: () => remove(pathOf(job), { namespace: job.Namespace, purge: true }),
    then: () => go("/ui/jobs"),
    done: `Job "${job.ID}" was purged`,
  };
}

function restart(job, reload) {
  return {
    label: "Restart",
    needs: ["alloc-lifecycle"],
    namespace: job.Namespace,
    question: `Restarts the tasks of all running allocations of "${job.ID}" in place, or gives the allocations new places.`,
    fields: [{ name: "reschedule", label: "Reschedule: stop the allocations, so that new ones are placed", kind: "checkbox" }],
    command: ({ reschedule }) => command(["job", "restart"], { ...flagsOf(job), reschedule }, [job.ID]),
    run: async ({ reschedule }) => {
      const allocs = await get(`${pathOf(job)}/allocations`, { namespace: job.Namespace });
      const running = allocs.filter((alloc) => alloc.ClientStatus === "running");
      for (const alloc of running)
        await put(
          reschedule ? `/v1/allocation/${alloc.ID}/stop` : `/v1/client/allocation/${alloc.ID}/restart`,
          {},
          { namespace: job.Namespace },
        );
      if (!running.length) throw new TypeError("No allocation of the job runs.");
    },
    then: reload,
    done: `Allocations of "${job.ID}" restart`,
  };
}

/** A failed deployment places nothing until a new version is registered. */
const mayRetry = (row) => row.Failed && row.DeploymentStatus !== "failed";

function retry(job, reload) {
  return {
    label: "Retry failed",
    needs: ["submit-job", "evaluate-job"],
    namespace: job.Namespace,
    question: `Places the failed allocations of "${job.ID}" again, whatever its reschedule policy says.`,
    command: command(["job", "eval"], { ...flagsOf(job), "force-reschedule": true }, [job.ID]),
    run: () =>
      put(
        `${pathOf(job)}/evaluate`,
        { JobID: job.ID, Namespace: job.Namespace, EvalOptions: { ForceReschedule: true } },
        { namespace: job.Namespace },
      ),
    then: reload,
    done: `Failed allocations of "${job.ID}" are placed again`,
  };
}

function force(job, reload) {
  return {
    label: "Launch now",
    needs: ["submit-job", "dispatch-job", "force-periodic-job"],
    namespace: job.Namespace,
    question: `Launches a child of the periodic job "${job.ID}" now.`,
    command: command(["job", "periodic", "force"], flagsOf(job), [job.ID]),
    run: () => put(`${pathOf(job)}/periodic/force`, {}, { namespace: job.Namespace }),
    then: reload,
    done: (answer) => (answer.Warnings ? `Not launched: ${answer.Warnings}` : `A child of "${job.ID}" was launched`),
  };
}

const MODE = { required: true, optional: false, forbidden: false };

/** Dispatch, with a form built from the job's declared metadata and payload. */
export function dispatch(job, reload) {
  const { MetaRequired, MetaOptional, Payload } = job.ParameterizedJob;
  const names = [...(MetaRequired ?? []).map((name) => [name, true]), ...(MetaOptional ?? []).map((name) => [name, false])];
  const fields = names.map(([name, required]) => ({
    name: `meta.${name}`,
    label: String(name),
    required,
    value: "",
    hint: required ? "" : "optional",
  }));
  if (Payload !== "forbidden")
    fields.push(
      /** @type {any} */ ({
        name: "payload",
        label: "Payload",
        kind: "textarea",
        required: MODE[Payload] ?? false,
        value: "",
        hint: "text that the task finds in its file",
      }),
    );
  fields.push(/** @type {any} */ ({ name: "prefix", label: "Prefix of the child's id", required: false, value: "", hint: "optional" }));
  const metaOf = (values) => Object.fromEntries(names.map(([name]) => [name, values[`meta.${name}`]]).filter(([, value]) => value));
  return {
    label: "Dispatch",
    needs: ["dispatch-job"],
    namespace: job.Namespace,
    fields,
    command: (values) =>
      command(["job", "dispatch"], { ...flagsOf(job), "id-prefix-template": values.prefix }, [
        ...Object.entries(metaOf(values)).flatMap(([name, value]) => ["-meta", `${name}=${value}`]),
        job.ID,
        ...(values.payload ? ["payload.txt"] : []),
      ]),
    run: (values) =>
      put(
        `${pathOf(job)}/dispatch`,
        { Meta: metaOf(values), Payload: values.payload ? toBase64(values.payload) : "", IdPrefixTemplate: values.prefix },
        { namespace: job.Namespace },
      ),
    then: (answer) => {
      reload();
      go(href(["jobs", answer.DispatchedJobID], { namespace: job.Namespace === "default" ? "" : job.Namespace }));
    },
    done: `A child of "${job.ID}" was dispatched`,
  };
}

/** UTF-8 text as base64. */
export const toBase64 = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));

/** Promote, fail, pause or resume the newest deployment. */
export function deploymentActions(job, id, status, needsPromotion, reload) {
  const flags = flagsOf(job);
  const act = (label, verb, body, rest) => ({
    label,
    namespace: job.Namespace,
    then: reload,
    command: command(["deployment", verb], flags, [id]),
    run: () => put(`/v1/deployment/${verb === "resume" ? "pause" : verb}/${id}`, { DeploymentID: id, ...body }),
    ...rest,
  });
  const active = ["running", "paused", "pending", "initializing"].includes(status);
  return [
    needsPromotion &&
      act(
        "Promote",
        "promote",
        { All: true },
        {
          needs: ["submit-job", "promote-deployment"],
          question: `Promotes the canaries of deployment ${id.slice(0, 8)}: the version rolls out.`,
          done: "The canaries were promoted",
        },
      ),
    active &&
      status !== "paused" &&
      act("Pause deployment", "pause", { Pause: true }, { needs: ["submit-job", "pause-deployment"], done: "The deployment is paused" }),
    status === "paused" &&
      act("Resume deployment", "resume", { Pause: false }, { needs: ["submit-job", "pause-deployment"], done: "The deployment goes on" }),
    active &&
      act(
        "Fail deployment",
        "fail",
        {},
        {
          needs: ["submit-job", "fail-deployment"],
          danger: true,
          question: "Fails the deployment; groups with auto_revert go back to the last stable version.",
          done: "The deployment was failed",
        },
      ),
  ].filter(Boolean);
}

/** All actions of a job, in the order of use. @returns {any[]} */
export function jobActions(job, row, reload) {
  const isParent = job.Periodic || (job.ParameterizedJob && !job.Dispatched);
  const deployment = row.DeploymentID
    ? deploymentActions(job, row.DeploymentID, row.DeploymentStatus, row.NeedsPromotion, reload).filter(
        (action) => /** @type {any} */ (action).label === "Promote",
      )
    : [];
  const edit = {
    label: "Edit",
    needs: ["submit-job", "plan-job"],
    namespace: job.Namespace,
    command: command(["job", "inspect"], { ...flagsOf(job), hcl: true }, [job.ID]),
    run: async () => go(href(["jobs", "run"], { edit: job.ID, namespace: job.Namespace })),
    done: "Plan before you run",
  };
  if (job.Stop) return [start(job, reload), edit, purge(job)];
  return [
    ...deployment,
    job.ParameterizedJob && !job.Dispatched ? dispatch(job, reload) : null,
    job.Periodic ? force(job, reload) : null,
    edit,
    isParent ? null : restart(job, reload),
    mayRetry(row) ? retry(job, reload) : null,
    stop(job),
  ].filter(Boolean);
}
