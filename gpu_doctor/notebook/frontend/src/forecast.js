// What the knobs that are turned should give, told beside the button before anything runs.

import { keyOf } from "./settings.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Forecast} Forecast */
/** @typedef {import("./contract").Settings} Settings */

/**
 * Under what the panel notes when it asked for a forecast.
 * @param {Settings} settings
 */
export function forecastKey(settings) { return `forecast:${keyOf(settings)}`; }

/**
 * What the kernel has told of settings; undefined where it has to be asked.
 * @param {Forecast[]} forecasts
 * @param {Settings} settings
 */
export function toldOf(forecasts, settings) {
  return forecasts.find((one) => keyOf(one.settings) === keyOf(settings));
}

/**
 * The id of what stands beside the button of a trial.
 * @param {import("./panel").Panel} panel
 */
export function forecastOf(panel) { return `${panel.id}-forecast`; }

/**
 * @param {import("./contract").PanelState} state
 * @param {import("./panel").Panel} panel
 */
export function forecastPart(state, panel) {
  const { forecasts } = state;
  const turned = Object.keys(panel.chosen).length > 0;
  const id = forecastOf(panel);
  if (!turned) return h("span", { role: "status", id, class: "gd-soft" }, words.turnFirst);
  if (!forecasts.length) return h("span", { role: "status", id });
  const told = toldOf(forecasts, panel.chosen);
  const said = told?.text ?? (panel.late(forecastKey(panel.chosen)) ? words.noAnswer : words.asking);
  return h("span", { class: told?.known ? "gd-predicted" : "gd-soft", role: "status", id, "data-forecast": "" }, said);
}
