// What buttons are for and what knobs change, in sentences.

import { h } from "./vdom.js";

/** @typedef {import("./contract").Knob} Knob */

/** @type {Record<string, string>} */
export const PURPOSES = {
  trial: "Runs the code as written and with these settings in turn, from the same state, then restores everything",
  treat: "Tries each recommendation, and keeps what is confirmed when it is measured again",
  real: "Runs the whole cell once more, in your namespace, under these settings",
  largest: "Finds the largest batch that fits and the best one for samples/s, in at most three short trials",
  sweep: "Compares every combination of the values that you tick with the code as written",
};

/**
 * What turning a knob changes in the training.
 * @param {Knob} knob
 * @param {string} id
 */
export function changesPart(knob, id) {
  return h("li", { id, key: id, class: knob.safe ? "" : "gd-changes" }, h("b", {}, knob.label),
    knob.safe ? ` is safe. ${knob.changes || "All results stay the same."}` : ` changes the training. ${knob.changes}`);
}
