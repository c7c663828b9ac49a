// The smallest pieces that the parts of the panel share.

import { h } from "./vdom.js";

/** @typedef {import("./vdom").Offered} Offered */

/**
 * @param {Offered} label
 * @param {() => void} onclick
 * @param {import("./vdom").Attributes} attributes
 */
export function button(label, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, label);
}

/**
 * Text; what stands between backticks is code.
 * @param {string} text
 * @returns {Offered[]}
 */
export function worded(text) {
  return text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", {}, part) : part)).filter(Boolean);
}

/**
 * `1 note`, `3 notes`.
 * @param {number} number
 * @param {string} noun
 */
export function counted(number, noun) { return `${number} ${noun}${number === 1 ? "" : "s"}`; }
