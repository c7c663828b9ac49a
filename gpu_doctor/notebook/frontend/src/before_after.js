// Both sides of the newest trial on one time scale: a step's phases, and the spread of step times.

import { h } from "./vdom.js";

/** @typedef {import("./contract").Segment} Segment */
/** @typedef {import("./contract").Side} Side */

/**
 * Draws the bar of a step. The shorter bar of two leaves a part empty.
 * @param {Segment[]} segments
 * @param {string} description description for a screen reader
 * @param {number | null} mark position of a thin line, 0 to 1 of the bar
 */
export function barPart(segments, description, mark = null) {
  return h("div", { class: "gd-bar", role: "img", "aria-label": description },
    segments.map((segment) => h("span", {
      key: segment.phase, style: `flex-grow: ${segment.share}; background: ${segment.colour}; color: ${segment.ink}`,
      "data-tip": `${segment.label}: ${segment.time}, ${segment.percent}`,
    }, h("b", {}, segment.label))),
    mark === null ? null : h("i", { class: "gd-ceiling", key: "ceiling", style: `left: ${(100 * mark).toFixed(2)}%` }));
}

/**
 * Draws both sides, and each phase's time before and after.
 * @param {import("./contract").Compared} compared
 * @param {number | null} ceiling step time with an ideal loader, 0 to 1 of a step as written
 * @param {string} asWritten label of the side that gets the ceiling
 */
export function comparedPart(compared, ceiling, asWritten) {
  const [before, after] = compared.sides;
  return [
    h("div", { class: "gd-sides" }, compared.sides.map((side) => sidePart(side, side.label === asWritten ? ceiling : null))),
    h("div", { class: "gd-chips" }, phasesOf(before, after).map(({ label, colour, was, is }) => h("span", { key: label },
      h("i", { style: `background: ${colour}` }), label, h("span", { class: "gd-soft" }, `${was} → `), h("b", {}, is)))),
  ];
}

/**
 * Draws one side: its bar and the spread of its steps.
 * @param {Side} side
 * @param {number | null} ceiling 0 to 1 of its step
 */
function sidePart({ label, total, segments, spread }, ceiling) {
  const length = segments.reduce((sum, segment) => sum + segment.share, 0);
  const description = segments.map((segment) => `${segment.label} ${segment.time}`).join(", ");
  return [
    h("div", { class: "gd-sidename" }, h("span", { class: "gd-what" }, label), h("b", {}, total)),
    h("div", {},
      barPart(segments, `${label}, ${total}: ${description}`, ceiling === null ? null : ceiling * length),
      spread ? h("div", { class: "gd-spread" },
        h("div", { class: "gd-range", "aria-hidden": "true" }, rangeParts(spread.at)),
        h("span", { class: "gd-soft" }, spread.text)) : null),
  ];
}

/**
 * Draws a spread as a whisker, a box and a median.
 * @param {number[]} at quantiles 5, 25, 50, 75 and 95 %
 */
function rangeParts([first = 0, low = 0, middle = 0, high = 0, last = 0]) {
  const place = (/** @type {number} */ from, /** @type {number} */ to) => `left: ${(100 * from).toFixed(2)}%; width: ${(100 * (to - from)).toFixed(2)}%`;
  return [
    h("i", { class: "gd-whisker", style: place(first, last) }), h("i", { class: "gd-box-of", style: place(low, high) }),
    h("i", { class: "gd-median", style: place(middle, middle) }),
  ];
}

/**
 * Returns the phases of both sides, each once, with its time before and after.
 * @param {Side} before
 * @param {Side} after
 */
export function phasesOf(before, after) {
  const times = (/** @type {Side} */ side) => new Map(side.segments.map((segment) => [segment.phase, segment]));
  const [was, is] = [times(before), times(after)];
  const phases = [...new Set([...was.keys(), ...is.keys()])];
  return phases.map((phase) => {
    const { label, colour } = /** @type {Segment} */ (was.get(phase) ?? is.get(phase));
    return { label, colour, was: was.get(phase)?.time ?? "0", is: is.get(phase)?.time ?? "0" };
  });
}
