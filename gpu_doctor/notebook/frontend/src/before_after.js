// Both sides of the newest trial to one time scale: where a step goes, and how long the steps took.

import { h } from "./vdom.js";

/** @typedef {import("./contract").Segment} Segment */
/** @typedef {import("./contract").Side} Side */

/**
 * The bar of a step; what its pieces do not fill is time that the step does not take.
 * @param {Segment[]} segments
 * @param {string} said
 * @param {number | null} mark where a thin line stands, 0..1 of the bar
 */
export function barPart(segments, said, mark = null) {
  return h("div", { class: "gd-bar", role: "img", "aria-label": said },
    segments.map((one) => h("span", {
      key: one.phase, style: `flex-grow: ${one.share}; background: ${one.colour}; color: ${one.ink}`,
      "data-tip": `${one.label}: ${one.time}, ${one.percent}`,
    }, h("b", {}, one.label))),
    mark === null ? null : h("i", { class: "gd-ceiling", key: "ceiling", style: `left: ${(100 * mark).toFixed(2)}%` }));
}

/**
 * @param {import("./contract").Compared} compared
 * @param {number | null} ceiling of a step as written, 0..1 of it
 * @param {string} asWritten the label of the side that the ceiling is of
 */
export function comparedPart(compared, ceiling, asWritten) {
  const [before, after] = compared.sides;
  return [
    h("div", { class: "gd-sides" }, compared.sides.map((one) => sidePart(one, one.label === asWritten ? ceiling : null))),
    h("div", { class: "gd-chips" }, phasesOf(before, after).map(({ label, colour, was, is }) => h("span", { key: label },
      h("i", { style: `background: ${colour}` }), label, h("span", { class: "gd-soft" }, `${was} → `), h("b", {}, is)))),
  ];
}

/**
 * @param {Side} side
 * @param {number | null} ceiling of its step, 0..1
 */
function sidePart({ label, total, segments, spread }, ceiling) {
  const length = segments.reduce((sum, one) => sum + one.share, 0);
  const said = segments.map((one) => `${one.label} ${one.time}`).join(", ");
  return [
    h("div", { class: "gd-sidename" }, h("span", { class: "gd-what" }, label), h("b", {}, total)),
    h("div", {},
      barPart(segments, `${label}, ${total}: ${said}`, ceiling === null ? null : ceiling * length),
      spread ? h("div", { class: "gd-spread" },
        h("div", { class: "gd-range", "aria-hidden": "true" }, rangeParts(spread.at)),
        h("span", { class: "gd-soft" }, spread.text)) : null),
  ];
}

/** @param {number[]} at the quantiles 5, 25, 50, 75 and 95 % */
function rangeParts([first = 0, low = 0, middle = 0, high = 0, last = 0]) {
  const place = (/** @type {number} */ from, /** @type {number} */ to) => `left: ${(100 * from).toFixed(2)}%; width: ${(100 * (to - from)).toFixed(2)}%`;
  return [
    h("i", { class: "gd-whisker", style: place(first, last) }), h("i", { class: "gd-box-of", style: place(low, high) }),
    h("i", { class: "gd-median", style: place(middle, middle) }),
  ];
}

/**
 * The phases of both sides, each once, with its time before and after.
 * @param {Side} before
 * @param {Side} after
 */
export function phasesOf(before, after) {
  const times = (/** @type {Side} */ side) => new Map(side.segments.map((one) => [one.phase, one]));
  const [was, is] = [times(before), times(after)];
  const phases = [...new Set([...was.keys(), ...is.keys()])];
  return phases.map((phase) => {
    const { label, colour } = /** @type {Segment} */ (was.get(phase) ?? is.get(phase));
    return { label, colour, was: was.get(phase)?.time ?? "0", is: is.get(phase)?.time ?? "0" };
  });
}
