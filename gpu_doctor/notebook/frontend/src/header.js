// The first line of the panel: the machine, how far the run is, and Stop.

import { button } from "./elements.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/**
 * The id of what says whether something runs: why most controls cannot act.
 * @param {import("./panel").Panel} panel
 */
export function statusOf(panel) { return `${panel.id}-status`; }

/**
 * The id of what says why a panel whose recording is only played starts nothing.
 * @param {import("./panel").Panel} panel
 */
export function noTrialsOf(panel) { return `${panel.id}-no-trials`; }

/**
 * The id of what says why nothing can be started now; null where it can.
 * @param {import("./contract").PanelState} state
 * @param {import("./panel").Panel} panel
 */
export function heldBy({ busy, noTrials }, panel) { return busy ? statusOf(panel) : noTrials ? noTrialsOf(panel) : null; }

/**
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
  const told = statusOf(panel);
  return h("header", { class: "gd-header" },
    h("span", { class: "gd-name" }, labels.product),
    header.name ? h("span", { class: "gd-case" }, header.name) : null,
    header.replay ? h("span", { class: "gd-replay" }, header.replay) : null,
    h("span", { class: "gd-machine" }, header.machine),
    h("span", { class: "gd-live" },
      h("span", { class: `gd-dot gd-${header.failed || lost || silent ? "broken" : state.status}`, "aria-hidden": "true" }),
      h("b", { role: "status", id: told },
        lost ? words.gone : silent ? words.noNews : stopping ? words.stopping : header.status),
      header.settings ? h("span", { class: "gd-running" }, header.settings) : null),
    h("span", { class: "gd-figures" }, [header.clock, header.steps, header.rate].filter(Boolean).join("  ·  ")),
    button(words.stop, () => panel.stop(), {
      class: "gd-stop", "data-ask": "stop", off: (!busy || stopping) && told, "aria-label": stop, tip: stop,
    }),
    busy && (header.stop || (panel.unheard && stopping))
      ? h("span", { class: "gd-hint" }, header.stop || words.unheard) : null,
    lost || silent || panel.unanswered
      ? h("span", { class: "gd-hint", role: "status" }, lost ? words.lost : silent ? words.silent : words.unanswered) : null,
    progress ? h("div", { class: "gd-progress" },
      h("progress", { max: "1", value: progress.share, "aria-label": words.progress }),
      h("span", {}, [progress.text, progress.steps, progress.left].filter(Boolean).join("  ·  "))) : null);
}
