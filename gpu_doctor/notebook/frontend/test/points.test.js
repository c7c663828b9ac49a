// The store of points, and the figures that legends take from it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Points, roundUp } from "../src/points.js";

const head = (more) => ({ clear: [], lines: [], names: {}, end: 0, tops: {}, epochs: [], evaluations: [], ...more });

function filled(x, y) {
  const points = new Points();
  points.take(head({ lines: [["base", "step", x.length, true]] }), new Float32Array([...x, ...y]));
  return points;
}

test("points come in increments, whole, and go", () => {
  const points = filled([0, 1], [5, 6]);
  const more = points.take(head({ lines: [["base", "step", 1, false], ["trial", "step", 1, true]] }), new Float32Array([2, 7, 0, 9]));
  assert.deepEqual(points.lines.get("base:step"), { x: [0, 1, 2], y: [5, 6, 7] });
  assert.deepEqual([...more.fresh.keys()], ["base:step"]);
  assert.deepEqual([...more.whole], ["trial:step"]);
  const gone = points.take(head({ clear: ["trial"] }), undefined);
  assert.deepEqual(points.lines.get("trial:step"), { x: [], y: [] });
  assert.deepEqual([...gone.whole], ["trial:step"]);
  assert.equal(points.drawn("step"), true);
  assert.equal(points.drawn("wait"), false);
});

test("points in the middle of a larger buffer are read where they lie", () => {
  const points = new Points();
  const bytes = new Uint8Array(20);
  new Float32Array(bytes.buffer, 8, 2).set([3, 4]);
  points.take(head({ lines: [["base", "step", 1, true]] }), new DataView(bytes.buffer, 8, 8));
  assert.deepEqual(points.lines.get("base:step"), { x: [3], y: [4] });
});

test("a legend shows the mean of the newest two seconds, or the value nearest to the pointer", () => {
  const points = filled([0, 1, 2, 3, 4], [10, 20, 30, 40, Number.NaN]);
  assert.equal(points.value("base:step", null), 35);
  assert.equal(points.value("base:step", 1.4), 20);
  assert.equal(points.value("base:step", 1.6), 30);
  assert.equal(points.value("base:step", 99), null, "a gap is no value");
  assert.equal(points.value("base:wait", null), null);
  assert.equal(filled([0], [Number.NaN]).value("base:step", null), null);
});

test("an axis ends at a round number above its value", () => {
  assert.deepEqual([0.9, 1, 7.2, 41, 99, 101, 1600].map(roundUp).map((one) => Number(one.toPrecision(3))), [1, 1, 8, 50, 100, 150, 2000]);
});
