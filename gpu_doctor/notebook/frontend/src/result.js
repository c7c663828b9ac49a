// What the trials proved: the first line once there is something, with what shows its code and what uses it.

import { codeFold, fixPart } from "./code.js";
import { button } from "./elements.js";
import { statusOf } from "./header.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./panel").Panel} Panel */

/**
 * The interval at the end keeps on one line.
 * @param {string} text
 */
function unbroken(text) {
  const [, said = text, interval = ""] = /^(.*?)(\([^()]*\))?$/s.exec(text) ?? [];
  return [said, interval ? h("span", { class: "gd-together" }, interval) : null];
}

/**
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
        class: panel.next === "use" ? "gd-primary" : "", off: busy && statusOf(panel), "data-use": "result", key: "use",
      })),
    panel.unfolded.has(code) ? fixPart(result.settings, "", panel) : null);
}
