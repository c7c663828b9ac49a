// The proven result of the trials, above the verdict, with buttons that show its code and apply it.

import { codeFold, fixPart } from "./code.js";
import { button } from "./elements.js";
import { statusId } from "./header.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * Prevents a line break in the interval at the end of a text.
 * @param {string} text
 */
function unbroken(text) {
  const [, main = text, interval = ""] = /^(.*?)(\([^()]*\))?$/s.exec(text) ?? [];
  return [main, interval ? h("span", { class: "gd-together" }, interval) : null];
}

/**
 * Draws the proven result, if there is one.
 * @param {State} state
 * @param {Panel} panel
 */
export function resultPart({ result, busy }, panel) {
  if (!result) return h("section", { class: "gd-result", hidden: true });
  const code = "result:code";
  return h("section", { class: "gd-result" },
    h("div", { class: "gd-proved", role: "status" }, unbroken(result.text)),
    h("div", { class: "gd-row" },
      result.more ? h("span", { class: result.warns ? "gd-warns" : "gd-soft" }, result.more) : null,
      codeFold(words.code, code, result.settings, panel),
      button(words.useIt, () => panel.turnTo(result.settings), {
        class: panel.next === "use" ? "gd-primary" : "", off: busy && statusId(panel), "data-use": "result", key: "use",
      })),
    panel.unfolded.has(code) ? fixPart(result.settings, "", panel) : null);
}
