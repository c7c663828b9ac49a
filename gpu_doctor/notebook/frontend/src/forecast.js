// The forecast for the turned knobs, shown next to the button before anything runs.

import { keyOf } from "./settings.js";
import { h } from "./vdom.js";
import { words } from "./words.js";

/** @typedef {import("./contract").Forecast} Forecast */
/** @typedef {import("./contract").Settings} Settings */

/**
 * Returns the key under which the panel stores the time of a forecast's request.
 * @param {Settings} settings
 */
export function forecastKey(settings) { return `forecast:${keyOf(settings)}`; }

/**
 * Returns the forecast for some settings in the state; undefined if it must be requested.
 * @param {Forecast[]} forecasts
 * @param {Settings} settings
 */
export function forecastFor(forecasts, settings) {
  return forecasts.find((forecast) => keyOf(forecast.settings) === keyOf(settings));
}

/**
 * Returns the id of the forecast's element.
 * @param {import("./panel").Panel} panel
 */
export function forecastId(panel) { return `${panel.id}-forecast`; }

/**
 * Draws the forecast for the turned knobs, or says why there is none.
 * @param {import("./contract").PanelState} state
 * @param {import("./panel").Panel} panel
 */
export function forecastPart(state, panel) {
  const { forecasts } = state;
  const turned = Object.keys(panel.chosen).length > 0;
  const id = forecastId(panel);
  if (!turned) return h("span", { role: "status", id, class: "gd-soft" }, words.turnFirst);
  if (!forecasts.length) return h("span", { role: "status", id });
  const forecast = forecastFor(forecasts, panel.chosen);
  const text = forecast?.text ?? (panel.late(forecastKey(panel.chosen)) ? words.noAnswer : words.asking);
  return h("span", { class: forecast?.known ? "gd-predicted" : "gd-soft", role: "status", id, "data-forecast": "" }, text);
}
