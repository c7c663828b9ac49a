// The first line of the panel: the machine, the progress of the run, and Stop.

import { button } from "./elements.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/**
 * Returns the id of the status, which says why most controls are switched off while something runs.
 * @param {import("./panel").Panel} panel
 */
export function statusId(panel) { return `${panel.id}-status`; }

/**
 * Returns the id of the sentence that says why a replay cannot start trials.
 * @param {import("./panel").Panel} panel
 */
export function noTrialsId(panel) { return `${panel.id}-no-trials`; }

/**
 * Returns the id of the element that says why nothing can be started now; null if something can.
 * @param {import("./contract").PanelState} state
 * @param {import("./panel").Panel} panel
 */
export function blockedBy({ busy, noTrials }, panel) { return busy ? statusId(panel) : noTrials ? noTrialsId(panel) : null; }

/**
 * Draws the header.
 * @param {import("./contract").PanelState} state
 * @param {import("./panel").Panel} panel
 */
export function headerPart(state, panel) {
  const { header, labels } = state;
  const { progress } = header;
  const { lost, silent } = panel.live;
  const busy = state.busy && !lost;
  const stopping = panel.stopping && busy;
  const stop = state.status === "waiting" ? words.stopRequest : words.stopRun;
  const statusElement = statusId(panel);
  return h("header", { class: "gd-header" },
    h("span", { class: "gd-name" }, labels.product),
    header.name ? h("span", { class: "gd-case" }, header.name) : null,
    header.replay ? h("span", { class: "gd-replay" }, header.replay) : null,
    h("span", { class: "gd-machine" }, header.machine),
    h("span", { class: "gd-live" },
      h("span", { class: `gd-dot gd-${header.failed || lost || silent ? "broken" : state.status}`, "aria-hidden": "true" }),
      h("b", { role: "status", id: statusElement },
        lost ? words.gone : silent ? words.noNews : stopping ? words.stopping : header.status),
      header.settings ? h("span", { class: "gd-running" }, header.settings) : null),
    h("span", { class: "gd-figures" }, [header.clock, header.steps, header.rate].filter(Boolean).join("  ·  ")),
    button(words.stop, () => panel.stop(), {
      class: "gd-stop", "data-ask": "stop", off: (!busy || stopping) && statusElement, "aria-label": stop, tip: stop,
    }),
    busy && (header.stop || (panel.stopUnanswered && stopping))
      ? h("span", { class: "gd-hint" }, header.stop || words.stopUnanswered) : null,
    lost || silent || panel.unanswered
      ? h("span", { class: "gd-hint", role: "status" }, lost ? words.lost : silent ? words.silent : words.unanswered) : null,
    progress ? h("div", { class: "gd-progress" },
      h("progress", { max: "1", value: progress.share, "aria-label": words.progress }),
      h("span", {}, [progress.text, progress.steps, progress.left].filter(Boolean).join("  ·  "))) : null);
}
