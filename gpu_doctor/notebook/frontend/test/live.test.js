// The panel's data against a kernel whose messages are lost, repeated and reordered on their way.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Live, forget, liveOf } from "../src/live.js";

const SECTIONS = ["header", "verdict", "table", "knobs"];

/** Numbers between 0 and 1 that are the same in every run (mulberry32). */
function chance(seed) {
  let now = seed;
  return () => {
    now = (now + 0x6d2b79f5) | 0;
    let mixed = Math.imul(now ^ (now >>> 15), 1 | now);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** A timer that nobody waits for does not keep the tests running. */
const timer = globalThis.setTimeout;
globalThis.setTimeout = (...given) => timer(...given).unref();

function model(traits = {}) {
  const held = { state: { busy: true }, rows: {}, ...traits };
  const calls = {};
  return {
    sent: [],
    get: (name) => held[name],
    set: (values) => { Object.assign(held, values); Object.keys(values).forEach((name) => calls[`change:${name}`]?.forEach((call) => call())); },
    on: (name, call) => { (calls[name] ??= new Set()).add(call); },
    off: (name, call) => { calls[name]?.delete(call); },
    greetings: 0,
    send(message) { if (message.ask === "hello") this.greetings += 1; else this.sent.push(message); },
    receive: (message, buffer) => calls["msg:custom"]?.forEach((call) => call(message, [buffer])),
    call: (name) => calls[name]?.forEach((call) => call()),
    listening: () => Object.values(calls).reduce((sum, one) => sum + one.size, 0),
  };
}

/** As the kernel does it: sections that changed and points that are new; or all, where it was asked. */
class Kernel {
  constructor(random) {
    this.random = random;
    this.seq = 0;
    this.state = Object.fromEntries(SECTIONS.map((name) => [name, 0]));
    this.points = [];
    this.asked = false;
  }

  message() {
    const changed = SECTIONS.filter(() => this.random() < 0.4);
    for (const name of changed) this.state[name] += 1;
    const fresh = Array.from({ length: Math.floor(this.random() * 4) }, (_, index) => this.points.length + index);
    this.points.push(...fresh);
    const { asked } = this;
    this.asked = false;
    this.seq += 1;
    const sent = asked ? this.points : fresh;
    const state = asked ? { ...this.state } : Object.fromEntries(changed.map((name) => [name, this.state[name]]));
    const head = { clear: asked ? ["base", "trial"] : [], lines: [["base", "step", sent.length, asked]], names: {}, end: 0, tops: {}, epochs: [], evaluations: [] };
    return [{ seq: this.seq, kind: asked ? "state" : "news", state, rows: head }, new Float32Array([...sent, ...sent])];
  }
}

function same(live, kernel) {
  assert.deepEqual(Object.fromEntries(SECTIONS.map((name) => [name, live.state[name]])), kernel.state);
  assert.deepEqual(live.points.lines.get("base:step")?.y ?? [], kernel.points);
}

/** What arrives of the messages: some never, some twice, some later than those behind them. */
function* road(random, messages) {
  const late = [];
  for (const one of messages) {
    const kind = random();
    if (kind < 0.1) continue;
    if (kind < 0.2) late.push(one);
    else { yield one; if (kind < 0.3) yield one; }
    if (late.length && random() < 0.4) yield late.shift();
  }
  yield* late;
}

test("after whatever was lost, repeated and reordered, page and kernel agree again", () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const random = chance(seed);
    const kernel = new Kernel(random);
    const page = model();
    const live = new Live(page);
      const answered = () => { if (page.sent.splice(0).length) kernel.asked = true; };
    function* bad() { for (let turn = 0; turn < 60; turn += 1) yield kernel.message(); }
    for (const one of road(random, bad())) { page.receive(...one); if (random() < 0.7) answered(); }
    let turns = 0;
    do { answered(); page.receive(...kernel.message()); turns += 1; } while (page.sent.length && turns < 400);
    assert.ok(turns < 400, `seed ${seed}: the page never had all`);
    if (kernel.asked) page.receive(...kernel.message());
    same(live, kernel);
  }
});

test("one gap is one question", () => {
  const kernel = new Kernel(chance(1));
  const page = model();
  const live = new Live(page);
  page.receive(...kernel.message());
  kernel.message();
  for (let turn = 0; turn < 5; turn += 1) page.receive(...kernel.message());
  assert.deepEqual(page.sent, [{ ask: "state" }]);
  kernel.asked = true;
  page.receive(...kernel.message());
  same(live, kernel);
});

test("a page that is loaded while a run goes on asks for all with the first message it hears", () => {
  const kernel = new Kernel(chance(2));
  for (let turn = 0; turn < 7; turn += 1) kernel.message();
  const page = model();
  const live = new Live(page);
  page.receive(...kernel.message());
  assert.deepEqual(page.sent, [{ ask: "state" }]);
  kernel.asked = true;
  page.receive(...kernel.message());
  same(live, kernel);
});

test("what is written down at the end makes up for a last message that was lost", () => {
  const kernel = new Kernel(chance(3));
  const page = model();
  const live = new Live(page);
  page.receive(...kernel.message());
  kernel.message();
  kernel.asked = true;
  const [{ seq, state, rows }, data] = kernel.message();
  page.set({ rows: { seq, head: rows, data }, state });
  same(live, kernel);
  page.receive(...kernel.message());
  assert.deepEqual(page.sent, []);
  same(live, kernel);
});

test("a view that failed says so in the state alone", () => {
  const page = model({ state: { header: 1 } });
  const live = new Live(page);
  const told = [];
  live.views.add({ update: () => told.push(live.state.message), draw: () => {} });
  page.set({ state: { header: 1, message: "The live view stopped." } });
  assert.deepEqual(told, ["The live view stopped."]);
});

test("a kernel that is gone is said to be, and nothing throws", () => {
  const page = model();
  page.send = () => { throw new Error("no comm"); };
  const live = new Live(page);
  let drawn = 0;
  live.views.add({ update: () => {}, draw: () => { drawn += 1; } });
  live.ask({ ask: "stop" });
  assert.equal(live.lost, true);
  assert.equal(drawn, 1);
});

test("the kernel is greeted a few times, while it runs something", () => {
  const kernel = new Kernel(chance(5));
  const page = model();
  const live = new Live(page);
  for (let turn = 0; turn < 30; turn += 1) page.receive(...kernel.message());
  assert.equal(page.greetings, 3);
  live.end();
  const idle = model({ state: { busy: false } });
  const other = new Live(idle);
  idle.receive(...new Kernel(chance(5)).message());
  assert.equal(idle.greetings, 0);
  other.end();
});

test("Jupyter's word that no kernel hears the model is passed on", () => {
  const page = model();
  const live = new Live(page);
  let lost = 0;
  live.views.add({ update: () => {}, draw: () => { lost += 1; } });
  page.call("comm_live_update");
  assert.deepEqual([live.lost, lost], [true, 1]);
  live.end();
  assert.equal(page.listening(), 0);
});

test("half a minute without news is noticed while something runs, and forgotten with the next news", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const kernel = new Kernel(chance(6));
  const page = model();
  const live = new Live(page);
  let drawn = 0;
  live.views.add({ update: () => {}, draw: () => { drawn += 1; } });
  page.receive(...kernel.message());
  t.mock.timers.tick(29_000);
  page.receive(...kernel.message());
  t.mock.timers.tick(29_999);
  assert.deepEqual([live.silent, live.lost, drawn], [false, false, 0]);
  t.mock.timers.tick(1);
  assert.deepEqual([live.silent, live.lost, drawn], [true, false, 1]);
  page.receive(...kernel.message());
  assert.equal(live.silent, false);
  const [last, data] = kernel.message();
  page.receive({ ...last, state: { ...last.state, busy: false } }, data);
  t.mock.timers.tick(120_000);
  assert.deepEqual([live.silent, live.lost], [false, false], "where nothing runs there is no news");
  live.end();
});

test("a page that was made while something ran notices the silence, too", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const live = new Live(model());
  t.mock.timers.tick(30_000);
  assert.equal(live.silent, true);
  live.end();
});

test("a kernel that was killed is found by a message that cannot be sent, long before half a minute", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const page = model();
  const live = new Live(page);
  page.receive(...new Kernel(chance(7)).message());
  page.send = () => { throw new Error("Cannot send"); };
  t.mock.timers.tick(6_000);
  assert.deepEqual([live.lost, live.silent], [true, false]);
  page.receive(...new Kernel(chance(7)).message());
  t.mock.timers.tick(60_000);
  assert.equal(live.silent, false, "one sentence is enough");
  live.end();
});

test("nothing listens and nothing is held after the model has gone", () => {
  const layout = {};
  const page = model({ layout });
  const live = liveOf(page);
  assert.equal(liveOf(model({ layout })), live, "two faces of one model share their layout");
  page.receive(...new Kernel(chance(4)).message());
  assert.ok(page.listening() > 0);
  forget(page);
  assert.equal(page.listening(), 0);
  assert.equal(live.points.lines.size, 0);
  const next = liveOf(page);
  assert.notEqual(next, live);
  forget(page);
});
