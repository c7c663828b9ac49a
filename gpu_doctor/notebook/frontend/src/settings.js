// Functions on knobs and on the settings that the user chose, as plain data.

/** @typedef {NonNullable<import("./contract").Request["grid"]>} Grid */
/** @typedef {import("./contract").Knob} Knob */
/** @typedef {import("./contract").Settings} Settings */
/** @typedef {import("./contract").Value} Value */

/**
 * Returns a key that is the same for equal settings in any order.
 * @param {Settings} settings
 */
export function keyOf(settings) {
  return JSON.stringify(Object.entries(settings).sort(([first], [second]) => (first < second ? -1 : 1)));
}

/**
 * Formats settings for the user: `amp=bf16`; empty for none.
 * @param {Settings} settings
 */
export function described(settings) { return Object.entries(settings).map(([name, value]) => `${name}=${value}`).join(", "); }

/**
 * Returns the knobs as they are with the chosen number of workers, or the number as written: some need workers.
 * @param {Knob[]} knobs
 * @param {Value | undefined} chosen
 * @returns {Knob[]}
 */
export function withWorkers(knobs, chosen) {
  const workers = chosen ?? knobs.find((knob) => knob.name === "num_workers")?.written;
  if (workers !== 0) return knobs;
  return knobs.map((knob) => (knob.needsWorkers && !knob.refusal ? { ...knob, refusal: knob.needsWorkers } : knob));
}

/**
 * Limits a typed number to `most`; returns `usual` if it is not above 0.
 * @param {number} given
 * @param {number} most
 * @param {number} usual
 */
export function limited(given, most, usual) {
  return given > 0 ? Math.min(given, most) : usual;
}

/**
 * Returns a grid with a value ticked, or without its tick; knobs without ticks are left out.
 * @param {Grid} grid
 * @param {string} name
 * @param {NonNullable<Value>} value
 * @returns {Grid}
 */
export function ticked(grid, name, value) {
  const { [name]: before = [], ...others } = grid;
  const remaining = before.filter((other) => other !== value);
  const values = remaining.length < before.length ? remaining : [...remaining, value];
  return values.length ? { ...others, [name]: values } : others;
}

/**
 * Returns the number of combinations of a grid.
 * @param {Grid} grid
 */
export function combinations(grid) {
  const lists = Object.values(grid);
  return lists.length ? lists.reduce((product, values) => product * values.length, 1) : 0;
}

/**
 * Formats a value with grouped thousands and as many decimals as the kernel's figures have.
 * @param {number | null} value
 * @param {[number, number][]} decimals smallest size and number of decimals, the largest size first
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
 * Returns the ticked permissions that a trial needs now.
 * @param {{ before: import("./contract").Notice[] | null }} state
 * @param {Set<string>} allowed
 */
export function allowedOf({ before }, allowed) {
  return (before ?? []).map((notice) => notice.allow).filter((notice) => allowed.has(notice));
}
