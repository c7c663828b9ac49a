// What trials gave: the table of runs, what a row unfolds, and the waterfall of a treatment. No state of its own.

const MANY_ROWS = 12;

function tablePart({ table }, panel) {
  if (!table.rows.length) return h("section", { class: "gd-runs", hidden: true });
  const wordy = (index) => (index < 2 ? "gd-word" : "");
  const details = table.details ?? [];
  const drawn = table.rows.flatMap((row, number) => rowParts(row, details[number], number, table.head.length, panel));
  const many = table.rows.length > MANY_ROWS;
  return h("section", { class: "gd-runs" }, h("div", { class: many ? "gd-scroll gd-many" : "gd-scroll", tabindex: "0", role: "region", "aria-label": "runs and trials" },
    h("table", {},
      h("thead", {}, h("tr", {}, table.head.map((text, index) => h("th", { scope: "col", class: wordy(index) }, text)))),
      h("tbody", {}, drawn))));
}

/** A row, and under it what it unfolds. */
function rowParts(row, detail, number, columns, panel) {
  const what = `row${number}`;
  const open = Boolean(detail) && panel.unfolded.has(what);
  const name = (cell) => (detail ? button(cell.text, () => panel.fold(what), {
    class: "gd-link gd-rowname", "aria-expanded": String(open), "data-fold": "row", title: cell.title || "losses, notes, code",
  }) : cell.text);
  const cells = row.map((cell, index) => h("td", {
    class: `${index < 2 ? "gd-word" : ""} ${cell.tone ? `gd-${cell.tone}` : ""}`, title: cell.title || null,
  }, index === 0 ? name(cell) : cell.text));
  const rows = [h("tr", { key: what }, cells)];
  if (open) rows.push(h("tr", { key: `${what}-more`, class: "gd-detail" }, h("td", { colspan: String(columns) }, detailPart(detail, what, panel))));
  return rows;
}

function detailPart(detail, what, panel) {
  const code = `${what}:code`;
  return h("div", { class: "gd-more-of" },
    detail.losses ? h("figure", {},
      h("img", { src: detail.losses, alt: `losses of both sides over samples seen: ${detail.judged.join(" ")}`, width: "340", height: "132" }),
      h("figcaption", {}, h("span", {}, h("i", { class: "gd-side" }), "baseline"), h("span", {}, h("i", { class: "gd-side gd-candidate" }), "candidate"),
        h("span", { class: "gd-soft" }, "loss over samples seen"))) : null,
    h("div", { class: "gd-said-of" },
      detail.judged.map((text, index) => h("div", { key: text, class: index ? "gd-soft" : detail.warns ? "gd-judged gd-warns" : "gd-judged" }, text)),
      detail.losses || detail.judged.length ? null : h("div", { class: "gd-soft" }, "There are no losses to compare."),
      detail.notes.length ? h("ul", {}, detail.notes.map((text) => h("li", { key: text }, text))) : null,
      detail.measured ? h("div", { class: "gd-soft" }, detail.measured) : null,
      codeFold("code", code, detail.settings, panel),
      panel.unfolded.has(code) ? fixPart(detail.settings, "", panel) : null));
}

/** What the last run for real wrote: it was started by a click, so no cell shows it. */
function outputPart({ output }) {
  if (!output) return h("section", { class: "gd-output", hidden: true });
  return h("section", { class: "gd-output" }, h("details", { open: true }, h("summary", {}, "output of the run for real"),
    output.text ? h("pre", { tabindex: "0", role: "region", "aria-label": "output of the run for real" }, output.text) : null,
    output.images.map((src, index) => h("img", { src, alt: `picture ${index + 1} of the run`, key: String(index) }))));
}

/** What a treatment arrived at: a bar per kept step, what was not kept, the change of the cells, what is left by hand. */
function planPart({ plan, busy }, panel) {
  if (!plan) return h("section", { class: "gd-plan", hidden: true });
  const kept = Object.keys(plan.settings).length > 0;
  return h("section", { class: "gd-plan" },
    h("div", { class: "gd-row gd-planhead" }, h("b", {}, "treatment"), h("span", { class: "gd-sum" }, plan.sentence),
      kept ? button("set the knobs to this", () => panel.turnTo(plan.settings), { class: "gd-link", disabled: busy }) : null),
    plan.steps.length ? h("div", { class: "gd-waterfall", role: "table", "aria-label": "measured gains" },
      plan.steps.map((one, number) => rungPart(one, number))) : null,
    plan.notes.map((text) => h("div", { class: "gd-note", key: text }, text)),
    plan.dropped.length ? h("div", { class: "gd-dropped gd-soft" }, "tried, not kept",
      h("ul", {}, plan.dropped.map((one, number) => h("li", { key: String(number) }, h("code", {}, one.label), ` ${one.why}`)))) : null,
    plan.fix ? [h("div", { class: "gd-subtitle" }, "your code with these settings"), changePart(plan.fix, "plan", panel)] : null,
    plan.byHand.length ? h("div", { class: "gd-byhand" }, h("div", { class: "gd-subtitle" }, "left to do by hand"),
      h("ul", {}, plan.byHand.map((text) => h("li", { key: text }, text)))) : null);
}

function rungPart(one, number) {
  const lost = one.added < 0;
  const share = (part) => `${(100 * Math.abs(part)).toFixed(2)}%`;
  return h("div", { class: "gd-rung", role: "row", key: String(number) },
    h("span", { class: "gd-what", role: "cell" }, one.label),
    h("span", { class: "gd-track", role: "cell", "aria-hidden": "true" },
      h("i", { class: "gd-was", style: `width: ${share(number ? one.before : one.added)}` }),
      number ? h("i", { class: lost ? "gd-lost" : one.whole ? "gd-gain gd-whole" : "gd-gain", style: `width: ${share(one.added)}` }) : null),
    h("b", { role: "cell" }, one.total),
    h("span", { class: "gd-soft", role: "cell" }, one.gain),
    one.losses ? h("span", { class: "gd-soft gd-losses", role: "cell" }, one.losses) : null);
}
