// What is told of knobs that were turned, and the phases of both sides of a trial.

import assert from "node:assert/strict";
import { test } from "node:test";

import { phasesOf } from "../src/before_after.js";
import { forecastFor } from "../src/forecast.js";

const told = [
  { settings: { num_workers: 2 }, text: "predicted 2.4x (2.0-2.8)", known: true },
  { settings: { num_workers: 2, persistent_workers: true }, text: "predicted 2.6x", known: true },
];

test("settings are found in whatever order they were turned, and what was not told is not made up", () => {
  assert.equal(forecastFor(told, { num_workers: 2 })?.text, "predicted 2.4x (2.0-2.8)");
  assert.equal(forecastFor(told, { persistent_workers: true, num_workers: 2 })?.text, "predicted 2.6x");
  assert.equal(forecastFor(told, { num_workers: 2, batch_size: 64 }), undefined);
});

test("a phase that one side does not have takes no time there", () => {
  const side = (...segments) => ({ segments: segments.map(([phase, time]) => ({ phase, label: phase, colour: "#000", time })) });
  assert.deepEqual(phasesOf(side(["wait", "30 ms"], ["forward", "3 ms"]), side(["forward", "2 ms"], ["copy", "1 ms"])), [
    { label: "wait", colour: "#000", was: "30 ms", is: "0" },
    { label: "forward", colour: "#000", was: "3 ms", is: "2 ms" },
    { label: "copy", colour: "#000", was: "0", is: "1 ms" },
  ]);
});
