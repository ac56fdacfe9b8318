/** A job's allocations. */
import { html } from "../../../vendor/preact.js";
import { AllocationList } from "../allocations.js";

export const Tab = ({ job }) => html`<${AllocationList} job=${job.ID} namespace=${job.Namespace} />`;
