// What lives as long as the panel's model: the state, the points, and the views to tell. One model may have several views.
//
// Every message of the kernel has the next number. Where one is missing, the page asks for all; the message behind the gap
// is taken all the same: on many kernels the answer waits for the end of the cell, and a panel with a gap is better than
// one that stands still until then. An answer that is lost is a gap as well. What is written down in the traits at the end
// of a run has everything.

import { Points } from "./points.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./contract").News | import("./contract").Whole} Message */
/** @typedef {import("./types").Model} Model */
/** @typedef {ReturnType<Points["take"]>} Changed */
/** @typedef {{ told(changed: Changed): void, draw(): void }} View */

/** The kernel sends twice a second while something runs, every few seconds where it can spare little time. */
const SILENT_MS = 30_000;
/** A kernel that was killed says nothing, but nothing can be sent to it either. */
const PROBED_MS = 6_000;
/** With these messages of a run; the first one may come before the page has its own way to the kernel. */
const GREETED_AT = [1, 4, 12];

export class Live {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.points = new Points();
    /** Number of the newest message that was taken. */
    this.last = 0;
    /** @type {Set<View>} */
    this.views = new Set();
    this.lost = this.silent = false;
    this.greeted = 0;
    /** @type {ReturnType<typeof setTimeout>[]} */
    this.quiet = [];
    /** @type {Partial<State>} */
    this.state = {};
    this.read();
    this.hearing = (/** @type {Message} */ message, /** @type {ArrayBufferView[]} */ buffers) => this.hear(message, buffers);
    this.reading = () => this.readAgain();
    model.on("msg:custom", this.hearing);
    model.on("change:state", this.reading);
    // Jupyter tells the models of a kernel that was restarted, or has gone, that none hears them any more.
    this.losing = () => this.lose();
    model.on("comm_live_update", this.losing);
    this.listen();
  }

  /** Takes what is written down in the traits, which is all there was when it was written. */
  read() {
    this.state = { ...this.model.get("state") };
    const { head, data, seq } = this.model.get("rows") ?? {};
    if (seq) this.last = seq;
    return head ? this.points.take(head, data) : null;
  }

  /** The traits were written anew: at the end of a run, with every point, or where the view has failed. */
  readAgain() {
    const whole = this.model.get("rows")?.seq >= this.last;
    const changed = whole ? this.read() : null;
    if (!whole) this.state = { ...this.state, ...this.model.get("state") };
    this.listen();
    this.tell(changed ?? { whole: new Set(), fresh: new Map() });
  }

  /**
   * Posts a request. A kernel that was restarted takes no message from this panel any more: sending throws.
   * @param {import("./contract").Request | { ask: "hello" }} request
   */
  ask(request) {
    try {
      this.model.send(request);
    } catch {
      this.lose();
    }
  }

  /** No kernel hears the panel any more. */
  lose() {
    this.lost = true;
    this.hush();
    for (const view of this.views) view.draw();
  }

  /** From now on silence is noticed, if something runs. */
  listen() {
    this.hush();
    this.silent = false;
    if (!this.state.busy || this.lost) return;
    const silent = () => { this.silent = true; for (const view of this.views) view.draw(); };
    this.quiet = [setTimeout(() => this.ask({ ask: "hello" }), PROBED_MS), setTimeout(silent, SILENT_MS)];
  }

  hush() { for (const timer of this.quiet.splice(0)) clearTimeout(timer); }

  /** The kernel learns from where it hears this whether it hears clicks while a cell runs. */
  greet() {
    this.greeted = this.state.busy ? this.greeted + 1 : 0;
    if (GREETED_AT.includes(this.greeted)) this.ask({ ask: "hello" });
  }

  /**
   * @param {Message} message
   * @param {ArrayBufferView[]} buffers
   */
  hear(message, buffers) {
    if (!message?.seq || !message.rows) return;
    const { seq } = message;
    const whole = message.kind === "state";
    const old = whole ? seq < this.last : seq <= this.last;
    if (whole ? old : seq > this.last + 1) this.ask({ ask: "state" });
    if (old) return;
    this.last = seq;
    this.state = whole ? { ...message.state } : { ...this.state, ...message.state };
    this.greet();
    this.listen();
    this.tell(this.points.take(message.rows, buffers?.[0]));
  }

  /** @param {Changed} changed */
  tell(changed) {
    for (const view of this.views) view.told(changed);
  }

  /** The model goes: nothing of the page may hold what it had. */
  end() {
    this.hush();
    this.model.off("msg:custom", this.hearing);
    this.model.off("change:state", this.reading);
    this.model.off("comm_live_update", this.losing);
    this.points = new Points();
    this.state = {};
  }
}

/** @type {WeakMap<object, Live>} */
const known = new WeakMap();

/** `initialize` and `render` are given two faces of one model: what they share is its layout object. */
const keyOf = (/** @type {Model} */ model) => {
  const shared = model.get("layout");
  return typeof shared === "object" && shared !== null ? shared : model;
};

/**
 * @param {Model} model
 * @returns {Live}
 */
export function liveOf(model) {
  const key = keyOf(model);
  const live = known.get(key) ?? new Live(model);
  known.set(key, live);
  return live;
}

/** @param {Model} model */
export function forget(model) {
  known.get(keyOf(model))?.end();
  known.delete(keyOf(model));
}
