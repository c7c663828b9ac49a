// Messages that are lost, come twice or out of order: what the page takes, and when it asks for all.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Messages, PATIENCE } from "../src/messages.js";

const news = (seq) => ({ seq, kind: "news" });
const all = (seq) => ({ seq, kind: "state" });

/** Hears messages; gives for each what is taken, with `?` where all is asked for. */
function heard(messages, given) {
  return given.map((one) => {
    const { take, ask } = messages.heard(one);
    if (ask) messages.question();
    return `${take}${ask ? "?" : ""}`;
  });
}

test("messages in their order are taken, and nothing is asked", () => {
  assert.deepEqual(heard(new Messages(), [1, 2, 3].map(news)), ["news", "news", "news"]);
});

test("a lost message is noticed by the next one, which is taken all the same; all is asked for once", () => {
  const messages = new Messages();
  assert.deepEqual(heard(messages, [1, 3, 4, 5].map(news)), ["news", "news?", "news", "news"]);
  assert.deepEqual(messages.question(), { ask: "state", have: 1 });
  assert.deepEqual(heard(messages, [all(6), news(7)]), ["all", "news"]);
  assert.equal(messages.missing, false);
});

test("a message that comes twice is taken once", () => {
  assert.deepEqual(heard(new Messages(), [1, 2, 2, 1, 3].map(news)), ["news", "news", "nothing", "nothing", "news"]);
});

test("a message that was overtaken does not undo what is newer; all is asked for once", () => {
  assert.deepEqual(heard(new Messages(), [1, 3, 2, 4].map(news)), ["news", "news?", "nothing", "news"]);
});

test("an answer that news overtook is not enough: it is asked again", () => {
  const messages = new Messages();
  assert.deepEqual(heard(messages, [news(1), news(3), news(5), all(4), all(6)]), ["news", "news?", "news", "nothing?", "all"]);
});

test("an answer that does not come is asked for again, more and more seldom", () => {
  const messages = new Messages();
  const said = heard(messages, Array.from({ length: 8 * PATIENCE }, (_, index) => news(index + 2)));
  const asked = said.flatMap((one, index) => (one.endsWith("?") ? [index] : []));
  assert.deepEqual(asked, [0, PATIENCE, 3 * PATIENCE, 7 * PATIENCE]);
});

test("a page that is loaded later goes on from what is written down", () => {
  assert.deepEqual(heard(new Messages(40), [news(41)]), ["news"]);
  assert.deepEqual(heard(new Messages(40), [news(43)]), ["news?"]);
});
