// Small elements that the parts of the panel share.

import { h } from "./vdom.js";

/** @typedef {import("./vdom").Offered} Offered */

/**
 * Draws a button. A button that is switched off can still be focused and says why it is off. Its tooltip appears when it
 * is focused or pointed at. Its request or fold is its key, so that it stays the same element when others come and go.
 * @param {Offered} label
 * @param {() => void} onclick
 * @param {import("./vdom").Attributes & { off?: string | null | false }} attributes `off` is the id of the element that says why it is switched off
 */
export function button(label, onclick, { off, tip, ...attributes } = {}) {
  const key = attributes["data-ask"] ?? attributes["data-fold"];
  return h("button", { type: "button", onclick: off ? null : onclick, ...(key ? { key } : {}), ...attributes, ...switchedOff(off), ...tipped(tip) }, label);
}

/**
 * Returns the attributes of a control that is switched off. It stays in the Tab order, unlike with `disabled`.
 * @param {string | null | false | undefined} off id of the element that says why
 * @returns {import("./vdom").Attributes}
 */
export function switchedOff(off) { return off ? { "aria-disabled": "true", "aria-describedby": off } : {}; }

/**
 * Returns the attributes of a tooltip: tips.js shows it next to the control, and a screen reader reads it.
 * @param {string | null | undefined} tip
 * @returns {import("./vdom").Attributes}
 */
export function tipped(tip) { return tip ? { "data-tip": tip, "aria-description": tip } : {}; }

/**
 * Converts text to children, with text between backticks as code.
 * @param {string} text
 * @returns {Offered[]}
 */
export function worded(text) {
  return text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", {}, part) : part)).filter(Boolean);
}

/**
 * Fills in the names in braces of a text: `Copy {cell}`.
 * @param {string} text
 * @param {Record<string, string | number>} given
 */
export function filled(text, given) { return text.replace(/\{(\w+)\}/g, (_, name) => String(given[name] ?? "")); }
