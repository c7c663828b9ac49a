// The data that lives as long as the panel's model: the state, the points, and the views to redraw. One model may have
// several views.
//
// The kernel numbers its messages. If a number is missing, the page requests the whole state, but still uses the message
// after the gap: on many kernels the answer waits until the cell ends, and a panel with a gap is better than a panel that
// stands still until then. A lost answer is a gap as well. The traits, written at the end of a run, have everything.

import { Points } from "./points.js";

/** @typedef {import("./contract").PanelState} State */
/** @typedef {import("./contract").News | import("./contract").Whole} Message */
/** @typedef {import("./types").Model} Model */
/** @typedef {ReturnType<Points["take"]>} Changed */
/** @typedef {{ update(changed: Changed): void, draw(): void }} View */

/** Silence after which the panel says so. While something runs, the kernel sends twice a second, or every few seconds. */
const SILENT_MS = 30_000;
/** Silence after which the page sends a message: sending to a kernel that was killed throws an error. */
const PROBED_MS = 6_000;
/** Messages of a run at which the page greets the kernel; at the first, its own channel may not be open yet. */
const GREETED_AT = [1, 4, 12];

export class Live {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.points = new Points();
    /** Number of the newest message that was used. */
    this.last = 0;
    /** @type {Set<View>} */
    this.views = new Set();
    this.lost = this.silent = false;
    this.greeted = 0;
    /** @type {ReturnType<typeof setTimeout>[]} */
    this.silenceTimers = [];
    /** @type {Partial<State>} */
    this.state = {};
    this.read();
    this.onMessage = (/** @type {Message} */ message, /** @type {ArrayBufferView[]} */ buffers) => this.receive(message, buffers);
    this.onTraits = () => this.readAgain();
    model.on("msg:custom", this.onMessage);
    model.on("change:state", this.onTraits);
    // Jupyter triggers this event on the models of a kernel that was restarted or is gone.
    this.onLost = () => this.lose();
    model.on("comm_live_update", this.onLost);
    this.listen();
  }

  /** Reads the state and the points from the traits, which were complete when they were written. */
  read() {
    this.state = { ...this.model.get("state") };
    const { head, data, seq } = this.model.get("rows") ?? {};
    if (seq) this.last = seq;
    return head ? this.points.take(head, data) : null;
  }

  /** Reads the traits after the kernel wrote them again: at the end of a run, with every point, or after a failure. */
  readAgain() {
    const whole = this.model.get("rows")?.seq >= this.last;
    const changed = whole ? this.read() : null;
    if (!whole) this.state = { ...this.state, ...this.model.get("state") };
    this.listen();
    this.updateViews(changed ?? { whole: new Set(), fresh: new Map() });
  }

  /**
   * Sends a request. If the kernel was restarted, sending throws, and the panel shows that its kernel is gone.
   * @param {import("./contract").Request | { ask: "hello" }} request
   */
  ask(request) {
    try {
      this.model.send(request);
    } catch {
      this.lose();
    }
  }

  /** Redraws the views to show that the panel's kernel is gone. */
  lose() {
    this.lost = true;
    this.stopTimers();
    for (const view of this.views) view.draw();
  }

  /** Starts the timers that notice silence, if something runs. */
  listen() {
    this.stopTimers();
    this.silent = false;
    if (!this.state.busy || this.lost) return;
    const silent = () => { this.silent = true; for (const view of this.views) view.draw(); };
    this.silenceTimers = [setTimeout(() => this.ask({ ask: "hello" }), PROBED_MS), setTimeout(silent, SILENT_MS)];
  }

  /** Stops the timers that notice silence. */
  stopTimers() { for (const timer of this.silenceTimers.splice(0)) clearTimeout(timer); }

  /** Greets the kernel, which learns from the receiving thread whether clicks arrive while a cell runs. */
  greet() {
    this.greeted = this.state.busy ? this.greeted + 1 : 0;
    if (GREETED_AT.includes(this.greeted)) this.ask({ ask: "hello" });
  }

  /**
   * Handles a message of the kernel: updates the state and the points, and redraws the views.
   * @param {Message} message
   * @param {ArrayBufferView[]} buffers
   */
  receive(message, buffers) {
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
    this.updateViews(this.points.take(message.rows, buffers?.[0]));
  }

  /**
   * Redraws the views.
   * @param {Changed} changed
   */
  updateViews(changed) {
    for (const view of this.views) view.update(changed);
  }

  /** Frees the data when the model is removed: a page that still refers to this object must not hold its points. */
  end() {
    this.stopTimers();
    this.model.off("msg:custom", this.onMessage);
    this.model.off("change:state", this.onTraits);
    this.model.off("comm_live_update", this.onLost);
    this.points = new Points();
    this.state = {};
  }
}

/** @type {WeakMap<object, Live>} */
const known = new WeakMap();

/** The key of a model: `initialize` and `render` get different objects for one model, but share its layout object. */
const keyOf = (/** @type {Model} */ model) => {
  const shared = model.get("layout");
  return typeof shared === "object" && shared !== null ? shared : model;
};

/**
 * Returns the data of a model, made at the first call.
 * @param {Model} model
 * @returns {Live}
 */
export function liveOf(model) {
  const key = keyOf(model);
  const live = known.get(key) ?? new Live(model);
  known.set(key, live);
  return live;
}

/**
 * Frees the data of a model that is removed.
 * @param {Model} model
 */
export function forget(model) {
  known.get(keyOf(model))?.end();
  known.delete(keyOf(model));
}
