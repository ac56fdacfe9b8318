/** The children of a periodic or parameterized job, with their states as filters. */
import { html } from "../../../vendor/preact.js";
import { JobList } from "../jobs.js";

export const Tab = ({ job }) => html`<${JobList} parent=${job.ID} />`;
