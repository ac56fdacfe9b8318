/** Completion of job files: the names that fit in a block, from the server's own schema (`data/job_schema.js`, generated). */

/** @typedef {Record<string, string>} Block names with kinds; a kind `> X` leads to block X. */

/** @param {string[]} blocks names of the blocks around, outermost first. */
export async function words(blocks) {
  const { SCHEMA } = await import("../data/job_schema.js");
  return namesIn(SCHEMA, blocks);
}

/** @param {Record<string, Block>} schema @param {string[]} blocks */
export function namesIn(schema, blocks) {
  let block = /** @type {Block} */ ({ job: "> Job", variable: "> Variable", locals: "any" });
  for (const name of blocks) {
    const kind = block[name] ?? "";
    const next = kind.startsWith("> ") ? schema[kind.slice(2)] : undefined;
    if (!next) return [];
    block = next;
  }
  return Object.entries(block).map(([label, kind]) =>
    kind.startsWith("> ")
      ? { label, type: "class", detail: "block", apply: `${label} {` }
      : { label, type: "property", detail: kind, apply: `${label} = ` },
  );
}
