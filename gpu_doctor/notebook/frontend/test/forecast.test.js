// What is told of knobs that were turned, and the phases of both sides of a trial.

import assert from "node:assert/strict";
import { test } from "node:test";

import { phasesOf } from "../src/before_after.js";
import { toldOf } from "../src/forecast.js";

const told = {
  labels: { noneTogether: "no forecast for these together: try it" },
  forecasts: [
    { settings: { num_workers: 2 }, text: "predicted 2.4x (2.0-2.8)", known: true, alone: "num_workers=2 alone predicted 2.4x" },
    { settings: { batch_size: 64 }, text: "predicted 1.1x", known: true, alone: "batch_size=64 alone predicted 1.1x" },
    { settings: { amp: "bf16" }, text: "no forecast: try it", known: false, alone: "amp=bf16 has none" },
    { settings: { num_workers: 4, batch_size: 64 }, text: "measured 3.00x in trial 1", known: true, alone: "" },
    { settings: { num_workers: 2, persistent_workers: true }, text: "predicted 2.6x", known: true, alone: "" },
  ],
};

test("settings are found in whatever order they were turned", () => {
  assert.equal(toldOf(told, { num_workers: 2 })?.text, "predicted 2.4x (2.0-2.8)");
  assert.equal(toldOf(told, { num_workers: 2, persistent_workers: true })?.text, "predicted 2.6x");
  assert.equal(toldOf(told, { persistent_workers: true, num_workers: 2 })?.text, "predicted 2.6x");
});

test("what was measured comes before what was predicted", () => {
  assert.equal(toldOf(told, { batch_size: 64, num_workers: 4 })?.text, "measured 3.00x in trial 1");
});

test("one knob without a forecast leaves the whole without, and it is said which", () => {
  const text = "no forecast for these together: try it (num_workers=2 alone predicted 2.4x; amp=bf16 has none)";
  assert.deepEqual(toldOf(told, { num_workers: 2, amp: "bf16" }), { text, known: false });
});

test("what was not told is not made up", () => {
  assert.equal(toldOf(told, { num_workers: 3, batch_size: 64 }), null, "a value that was not offered");
  assert.equal(toldOf(told, { num_workers: 2, batch_size: 64 }), null, "each has a forecast: the kernel may know more");
  assert.equal(toldOf({ ...told, forecasts: [] }, { num_workers: 2 }), null);
});

test("a phase that one side does not have takes no time there", () => {
  const side = (...segments) => ({ segments: segments.map(([phase, time]) => ({ phase, label: phase, colour: "#000", time })) });
  assert.deepEqual(phasesOf(side(["wait", "30 ms"], ["forward", "3 ms"]), side(["forward", "2 ms"], ["copy", "1 ms"])), [
    { label: "wait", colour: "#000", was: "30 ms", is: "0" },
    { label: "forward", colour: "#000", was: "3 ms", is: "2 ms" },
    { label: "copy", colour: "#000", was: "0", is: "1 ms" },
  ]);
});
