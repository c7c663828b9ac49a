// The colour behind the panel, as style sheets compute it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { isDark, luminance, rgba } from "../src/ground.js";

test("colours are read as browsers write them", () => {
  assert.deepEqual(rgba("rgb(30, 30, 30)"), [30, 30, 30, 1]);
  assert.deepEqual(rgba("rgba(0, 0, 0, 0)"), [0, 0, 0, 0]);
  assert.deepEqual(rgba("color(srgb 1 0.5 0 / 0.25)"), [255, 127.5, 0, 0.25]);
  assert.deepEqual(rgba(""), [0, 0, 0, 0]);
});

test("what is dark is what white reads better on", () => {
  assert.equal(luminance([255, 255, 255, 1]), 1);
  for (const dark of ["rgb(0, 0, 0)", "rgb(17, 17, 17)", "rgb(56, 56, 56)", "rgb(0, 43, 54)"]) assert.ok(isDark(dark), dark);
  for (const light of ["rgb(255, 255, 255)", "rgb(253, 246, 227)", "rgb(187, 187, 187)"]) assert.ok(!isDark(light), light);
});
