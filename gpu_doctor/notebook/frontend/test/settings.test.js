// Knobs, grids and figures as plain data.

import assert from "node:assert/strict";
import { test } from "node:test";

import { allowedOf, withWorkers, combinations, figure, keyOf, ticked, limited } from "../src/settings.js";

test("settings are the same in whatever order they stand", () => {
  assert.equal(keyOf({ amp: "bf16", num_workers: 2 }), keyOf({ num_workers: 2, amp: "bf16" }));
  assert.notEqual(keyOf({ num_workers: 2 }), keyOf({ num_workers: 4 }));
});

test("knobs that need workers are offered as soon as some are chosen, and where it is not known that there are none", () => {
  const knobs = [
    { name: "num_workers", written: 0, refusal: "", needsWorkers: "" },
    { name: "prefetch_factor", refusal: "", needsWorkers: "set num_workers above 0 first" },
    { name: "persistent_workers", refusal: "for another reason", needsWorkers: "set num_workers above 0 first" },
  ];
  const said = (given, chosen) => withWorkers(given, chosen).map((one) => one.refusal);
  assert.deepEqual(said(knobs, undefined), ["", "set num_workers above 0 first", "for another reason"]);
  assert.deepEqual(said(knobs, 0), said(knobs, undefined));
  assert.deepEqual(said(knobs, 2), ["", "", "for another reason"]);
  const [workers, ...others] = knobs;
  assert.deepEqual(said([{ ...workers, written: null }, ...others], undefined), ["", "", "for another reason"]);
  assert.deepEqual(said([{ ...workers, written: 2 }, ...others], 0), said(knobs, 0));
});

test("what was typed stays within its bounds, and nonsense is what is usual", () => {
  assert.deepEqual([30, 1e9, 0, -3, Number.NaN].map((one) => limited(one, 100, 50)), [30, 100, 50, 50, 50]);
});

test("ticks come and go; a knob without ticks is no part of the grid", () => {
  let grid = ticked({}, "num_workers", 2);
  grid = ticked(grid, "num_workers", 4);
  grid = ticked(grid, "amp", "bf16");
  assert.deepEqual(grid, { num_workers: [2, 4], amp: ["bf16"] });
  assert.equal(combinations(grid), 2);
  grid = ticked(ticked(grid, "amp", "bf16"), "num_workers", 4);
  assert.deepEqual(grid, { num_workers: [2] });
  assert.equal(combinations({}), 0);
});

test("figures are written as the kernel says", () => {
  const decimals = [[99.95, 0], [9.995, 1], [0.9995, 2], [0.001, 3]];
  const written = { thousands: "\u202f", missing: "-" };
  const said = [1840, 1234567, 64.23, 6.416, 0.6421, 0, null, 99.96].map((one) => figure(one, decimals, written));
  assert.deepEqual(said, ["1\u202f840", "1\u202f234\u202f567", "64.2", "6.42", "0.642", "0", "-", "100"]);
});

test("only permissions that a trial needs now are asked for", () => {
  const before = ["", "network", "processes"].map((allow) => ({ text: allow, tone: /** @type {const} */ ("bad"), allow, tick: "" }));
  assert.deepEqual(allowedOf({ before }, new Set(["network", "large_data"])), ["network"]);
  assert.deepEqual(allowedOf({ before: null }, new Set(["network"])), []);
});
