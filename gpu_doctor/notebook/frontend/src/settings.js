// Knobs and what a person chose of them, as plain data.

/** @typedef {NonNullable<import("./contract").Request["grid"]>} Grid */
/** @typedef {import("./contract").Knob} Knob */
/** @typedef {import("./contract").Settings} Settings */
/** @typedef {import("./contract").Value} Value */

/**
 * One text for settings that are the same, in whatever order.
 * @param {Settings} settings
 */
export function keyOf(settings) {
  return JSON.stringify(Object.entries(settings).sort(([one], [other]) => (one < other ? -1 : 1)));
}

/**
 * Settings as a person reads them: `amp=bf16`; empty for none.
 * @param {Settings} settings
 */
export function described(settings) { return Object.entries(settings).map(([name, value]) => `${name}=${value}`).join(", "); }

/**
 * The knobs with a number of workers that was chosen, or as written: some cannot be turned without any.
 * @param {Knob[]} knobs
 * @param {Value | undefined} chosen
 * @returns {Knob[]}
 */
export function asTurned(knobs, chosen) {
  const workers = chosen ?? knobs.find((one) => one.name === "num_workers")?.written;
  if (workers !== 0) return knobs;
  return knobs.map((one) => (one.needsWorkers && !one.refusal ? { ...one, refusal: one.needsWorkers } : one));
}

/**
 * What was typed, as a number above 0 and at most `most`; else what is usual.
 * @param {number} given
 * @param {number} most
 * @param {number} usual
 */
export function within(given, most, usual) {
  return given > 0 ? Math.min(given, most) : usual;
}

/**
 * Ticks a value in a grid, or takes the tick off; a knob without ticks is left out.
 * @param {Grid} grid
 * @param {string} name
 * @param {NonNullable<Value>} value
 * @returns {Grid}
 */
export function ticked(grid, name, value) {
  const { [name]: before = [], ...others } = grid;
  const kept = before.filter((one) => one !== value);
  const values = kept.length < before.length ? kept : [...kept, value];
  return values.length ? { ...others, [name]: values } : others;
}

/**
 * How many combinations a grid has.
 * @param {Grid} grid
 */
export function combinations(grid) {
  const lists = Object.values(grid);
  return lists.length ? lists.reduce((product, values) => product * values.length, 1) : 0;
}

/**
 * A value with its thousands grouped and as many decimals as the kernel's figures have.
 * @param {number | null} value
 * @param {[number, number][]} decimals from which size on how many, the largest first
 * @param {{ thousands: string, missing: string }} written
 */
export function figure(value, decimals, { thousands, missing }) {
  if (value === null) return missing;
  const [, digits] = decimals.find(([least]) => Math.abs(value) >= least) ?? [0, 0];
  const [whole, part] = /** @type {[string, string?]} */ (value.toFixed(digits).split("."));
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, thousands);
  return part === undefined ? grouped : `${grouped}.${part}`;
}

/**
 * The permissions that are ticked, of those that a trial needs now.
 * @param {{ before: import("./contract").Notice[] | null }} state
 * @param {Set<string>} allowed
 */
export function allowedOf({ before }, allowed) {
  return (before ?? []).map((one) => one.allow).filter((one) => allowed.has(one));
}
