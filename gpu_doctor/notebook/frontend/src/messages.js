// The kernel's messages, counted: what to do with one that comes, whether others were lost, and when to ask for all.
//
// Every message has the next number. One of the kind `state` holds everything; the others hold what is new. A gap is
// noticed by the next message, which is taken all the same: on many kernels the answer to a question waits for the end of
// the cell, and a panel with a gap is better than one that stands still until then.

/** So many messages later an answer that did not come is asked for again; twice as many after each time. */
export const PATIENCE = 20;

export class Messages {
  /** @param {number} last number of the message up to which the page has everything. */
  constructor(last = 0) {
    this.last = last;
    /** Up to here nothing is missing. */
    this.whole = last;
    this.missing = false;
    /** @type {number | null} */
    this.askedAt = null;
    this.patience = PATIENCE;
  }

  /**
   * @param {{ seq: number, kind: string }} message
   * @returns {{ take: "all" | "news" | "nothing", ask: boolean }}
   */
  heard({ seq, kind }) {
    if (kind === "state") return this.heardAll(seq);
    if (seq <= this.last) return { take: "nothing", ask: false }; // it was here, or its gap was noticed
    if (seq > this.last + 1) this.missing = true;
    this.last = seq;
    if (!this.missing) this.whole = seq;
    return { take: "news", ask: this.missing && this.due() };
  }

  /** @param {number} seq */
  heardAll(seq) {
    this.askedAt = null;
    if (seq < this.last) { // news overtook it, which it does not hold
      this.missing = true;
      return { take: /** @type {const} */ ("nothing"), ask: true };
    }
    this.last = this.whole = seq;
    this.missing = false;
    this.patience = PATIENCE;
    return { take: /** @type {const} */ ("all"), ask: false };
  }

  due() { return this.askedAt === null || this.last - this.askedAt >= this.patience; }

  /**
   * The question for all; noted, so that it is asked once.
   * @returns {import("./contract").Ask}
   */
  question() {
    if (this.askedAt !== null) this.patience *= 2;
    this.askedAt = this.last;
    return { ask: "state", have: this.whole };
  }
}
