// The smallest pieces that the parts of the panel share.

import { h } from "./vdom.js";

/** @typedef {import("./vdom").Offered} Offered */

/**
 * A button. One that cannot act keeps the focus and says why; what it is for stands beside it when it is reached. What it
 * asks for or unfolds tells it from its neighbours: it stays the same element, with the focus, where others come and go.
 * @param {Offered} label
 * @param {() => void} onclick
 * @param {import("./vdom").Attributes & { off?: string | null | false }} attributes `off` is the id of what says why it cannot act
 */
export function button(label, onclick, { off, tip, ...attributes } = {}) {
  const key = attributes["data-ask"] ?? attributes["data-fold"];
  return h("button", { type: "button", onclick: off ? null : onclick, ...(key ? { key } : {}), ...attributes, ...switchedOff(off), ...tipped(tip) }, label);
}

/**
 * What tells that a control cannot act: it is not taken out of the order of the Tab key, as `disabled` would do.
 * @param {string | null | false | undefined} off the id of what says why
 * @returns {import("./vdom").Attributes}
 */
export function switchedOff(off) { return off ? { "aria-disabled": "true", "aria-describedby": off } : {}; }

/**
 * What a control is for: tips.js shows it beside the control, a screen reader says it.
 * @param {string | null | undefined} tip
 * @returns {import("./vdom").Attributes}
 */
export function tipped(tip) { return tip ? { "data-tip": tip, "aria-description": tip } : {}; }

/**
 * Text; what stands between backticks is code.
 * @param {string} text
 * @returns {Offered[]}
 */
export function worded(text) {
  return text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", {}, part) : part)).filter(Boolean);
}

/**
 * A sentence of the state's with what only the page knows: `Copy {cell}`.
 * @param {string} text
 * @param {Record<string, string | number>} given
 */
export function filled(text, given) { return text.replace(/\{(\w+)\}/g, (_, name) => String(given[name] ?? "")); }
