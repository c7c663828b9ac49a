// The parts of the panel: from the kernel's plain data and what a person chose to a tree of elements. No state of its own.

const SETTLED_BUTTONS = {
  trial: "Runs the code as written and with these settings in turn, from the same state, then restores everything",
  treat: "Tries each recommendation, and keeps what is confirmed when it is measured again",
  real: "Runs the whole cell once more, in your namespace, under these settings",
  largest: "Finds the largest batch that fits and the best one for samples/s, in at most three short trials",
  sweep: "Compares every combination of the values that you tick with the code as written",
};

const BEFORE = "A trial restores model, optimizer, loaders, random generators, your variables and the files that your cell writes. It does not undo data that it sends.";

const BUDGET = "Steps of each side, and seconds to measure in all: they count from the end of the warm-up. Set-up, compile and downloads have their own time, told while they last.";

const LOST = "The kernel that ran this cell is gone: run the cell again.";
const UNANSWERED = "No answer yet: the kernel is busy. If it was restarted, run the cell again.";

function button(label, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, label);
}

/** Text; what stands between backticks is code. */
function worded(text) {
  return text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", {}, part) : part)).filter(Boolean);
}

function headerPart(state, panel) {
  const { header, busy } = state;
  const { progress } = header;
  const stopping = panel.stopping && busy;
  const stop = state.status === "waiting" ? "Cancel the request before it begins" : "Stop the run";
  return h("header", { class: "gd-header" },
    h("span", { class: "gd-name" }, "GPU Doctor"),
    header.name ? h("span", { class: "gd-case" }, header.name) : null,
    h("span", { class: "gd-machine" }, header.machine),
    h("span", { class: "gd-live", role: "status" },
      h("span", { class: `gd-dot gd-${header.failed ? "broken" : state.status}`, "aria-hidden": "true" }),
      h("b", {}, stopping ? "stopping" : header.status),
      header.settings ? h("span", { class: "gd-running" }, header.settings) : null),
    h("span", { class: "gd-figures" }, [header.clock, header.steps, header.rate].filter(Boolean).join("  ·  ")),
    button("Stop", () => panel.stop(), {
      class: "gd-stop", "data-ask": "stop", disabled: !busy || stopping, "aria-label": stop, title: stop,
    }),
    busy && (header.stop || (panel.unheard && stopping))
      ? h("span", { class: "gd-hint" }, header.stop || "No answer yet: interrupt the kernel (Kernel menu, or the stop button).") : null,
    panel.live.lost || panel.unanswered ? h("span", { class: "gd-hint", role: "status" }, panel.live.lost ? LOST : UNANSWERED) : null,
    progress ? h("div", { class: "gd-progress" },
      h("progress", { max: "1", value: progress.share, "aria-label": "progress of the trial" }),
      h("span", {}, [progress.text, progress.steps, progress.left].filter(Boolean).join("  ·  "))) : null);
}

function verdictPart(state, panel) {
  const { verdict } = state;
  const { advice } = verdict;
  return h("section", { class: "gd-verdict", style: `--gd-accent-now: ${verdict.accent}` },
    h("div", { class: "gd-sentence", "aria-live": "polite" },
      h("span", { class: "gd-text" }, worded(verdict.text)),
      verdict.kind ? h("span", { class: "gd-kind" }, verdict.kind) : null,
      verdict.early ? h("span", { class: "gd-early" }, verdict.early) : null),
    verdict.risk ? h("div", { class: "gd-risk" }, verdict.risk) : null,
    advice ? advicePart(advice, state.busy, panel, "top") : h("div", { class: "gd-advice" }));
}

/** What to try: its price, a button that tries it, and, folded, why and the lines to paste. */
function advicePart(advice, busy, panel, where) {
  const canTry = Object.keys(advice.settings).length > 0;
  const folded = (what) => `${where}:${what}`;
  const fold = (label, what) => button(label, () => panel.fold(folded(what)), {
    class: "gd-link", "aria-expanded": String(panel.unfolded.has(folded(what))), "data-fold": what,
  });
  const code = canTry ? codeFold("code", folded("code"), advice.settings, panel)
    : advice.code ? fold("code", "code") : null;
  return h("div", { class: "gd-advice" },
    h("div", { class: "gd-row" },
      h("span", { class: "gd-try" }, worded(advice.text.replace(/\.$/, ""))),
      advice.predicted ? h("span", { class: "gd-predicted" }, advice.predicted) : null,
      h("span", { class: "gd-soft" }, advice.safety),
      canTry ? button("Try it", () => panel.tryIt(advice.settings), {
        class: "gd-primary", "data-ask": "try", disabled: busy, onpointerenter: () => panel.near(), onfocus: () => panel.near(),
      }) : null,
      advice.page.length ? fold("why?", "why") : null,
      code),
    advice.changes ? h("div", { class: "gd-soft" }, advice.changes) : null,
    !panel.unfolded.has(folded("code")) ? null
      : canTry ? fixPart(advice.settings, advice.code, panel) : codePart(advice.code, panel),
    advice.page.length && panel.unfolded.has(folded("why")) ? pagePart(advice.page) : null);
}

function pagePart(page) {
  return h("div", { class: "gd-page" }, page.map((one) => [one.title ? h("b", {}, one.title) : null, h("p", {}, worded(one.text))]));
}

function anatomyPart({ anatomy }) {
  const { segments } = anatomy;
  const said = segments.map((one) => `${one.label} ${one.percent}`).join(", ");
  return h("section", { class: "gd-anatomy" },
    h("div", { class: "gd-title" }, h("b", {}, "anatomy of a step"), h("span", { class: "gd-soft" }, anatomy.of),
      h("b", { class: "gd-total" }, anatomy.total)),
    h("div", { class: "gd-bar", role: "img", "aria-label": said || "no step was measured yet" },
      segments.map((one) => h("span", {
        key: one.phase, style: `flex-grow: ${one.share}; background: ${one.colour}; color: ${one.ink}`,
        title: `${one.label}: ${one.time}, ${one.percent}`,
      }, h("b", {}, one.label)))),
    h("div", { class: "gd-chips" }, segments.map((one) => h("span", { key: one.phase },
      h("i", { style: `background: ${one.colour}` }), one.label, h("b", {}, one.percent), h("span", { class: "gd-soft" }, one.time)))));
}

function number(value, unit) {
  if (value === null) return "–";
  const digits = unit === "%" ? 0 : value >= 100 ? 0 : value >= 9.95 ? 1 : 2;
  return value.toFixed(digits);
}

/** Title, legend (a switch per line, with its value now or where the pointer is). The plot itself is Bokeh's. */
function legendPart(plot, plots) {
  const trial = plots.points.head.names.trial;
  return [
    h("b", {}, plot.title), h("span", { class: "gd-soft gd-unit" }, plot.unit),
    plot.lines.filter((line) => plots.points.lines.get(`base:${line.key}`)?.x.length || plots.points.lines.get(`trial:${line.key}`)?.x.length)
      .map((line) => {
        const colour = plots.colour(line);
        const style = { dashed: "dashed", dotted: "dotted", dotdash: "dashed" }[line.dash] ?? "solid";
        const now = number(plots.value(`base:${line.key}`), plot.unit);
        const then = trial ? number(plots.value(`trial:${line.key}`), plot.unit) : null;
        return button([
          h("i", { style: `border-top: 3px ${style} ${colour}` }), h("span", {}, line.label),
          h("b", {}, then === null || then === "–" || then === now ? now : `${now} → ${then}`),
        ], () => plots.toggle(line.key), {
          key: line.key, class: "gd-line", title: `${line.title}: click to hide or show`, "aria-pressed": String(!plots.hidden.has(line.key)),
        });
      }),
  ];
}

function plotsKeyPart(head, pointedAt) {
  const parts = [h("span", {}, pointedAt === null ? "seconds since the start" : `at ${pointedAt.toFixed(2)} s`)];
  if (head.epochs.length) parts.push(h("span", {}, h("i", { class: "gd-mark gd-epoch" }), "epoch"));
  if (head.evaluations.length) parts.push(h("span", {}, h("i", { class: "gd-mark gd-evaluation" }), "evaluation"));
  if (head.names.trial) {
    parts.push(h("span", {}, h("i", { class: "gd-thin" }), head.names.base || "as written"));
    parts.push(h("span", {}, h("i", { class: "gd-broad" }), head.names.trial));
  }
  return parts;
}

/** The knobs as they would be offered with the number of workers that was chosen and not run yet. */
function asTurned(knobs, chosen) {
  const written = knobs.find((one) => one.name === "num_workers")?.written ?? 0;
  if (((chosen ?? written) > 0) === (written > 0)) return knobs;
  return knobs.map((one) => (one.otherwise ? { ...one, ...one.otherwise } : one));
}

function knobPart(knob, knobs, panel) {
  const id = `${panel.id}-${knob.name}`;
  const chosen = panel.chosen[knob.name] ?? knob.written;
  const choices = knob.choices.some((one) => one.value === chosen)
    ? knob.choices : [...knob.choices, { value: chosen, label: chosen === null ? "–" : String(chosen), refusal: "" }];
  const moved = panel.chosen[knob.name] !== undefined;
  return h("div", { class: moved ? "gd-knob gd-moved" : "gd-knob", key: knob.name },
    h("label", { for: id }, knob.label),
    h("select", {
      id, "data-knob": knob.name, disabled: Boolean(knob.refusal) && !moved, title: knob.refusal,
      "aria-describedby": knob.refusal || moved ? `${panel.id}-${saidAt(knob, knobs)}-said` : null,
      value: String(choices.findIndex((one) => one.value === chosen)),
      onchange: (event) => panel.choose(knob, choices[Number(event.target.value)].value),
    }, choices.map((one, index) => h("option", {
      value: String(index), disabled: Boolean(one.refusal), title: one.refusal,
    }, one.label))));
}

/** The knob whose line says why this one cannot act: knobs with one reason share a line. */
function saidAt(knob, knobs) {
  const same = knob.refusal && knobs.find((one) => one.refusal === knob.refusal);
  return (same || knob).name;
}

/** What turning a knob changes in the training. */
function changesPart(knob, id) {
  return h("li", { id, key: id, class: knob.safe ? "" : "gd-changes" }, h("b", {}, knob.label),
    knob.safe ? ` is safe. ${knob.changes || "All results stay the same."}` : ` changes the training. ${knob.changes}`);
}

/** Why knobs cannot act, what they change: one line a reason, under the controls. */
function knobSentences(knobs, panel) {
  const lines = knobs.flatMap((knob) => {
    const id = `${panel.id}-${knob.name}-said`;
    const moved = panel.chosen[knob.name] !== undefined;
    if (knob.refusal) {
      const alike = knobs.filter((one) => one.refusal === knob.refusal);
      const names = h("b", {}, alike.map((one) => one.label).join(", "));
      return alike[0] === knob ? [h("li", { id, key: id }, names, ` cannot be changed: ${knob.refusal}`)] : [];
    }
    const said = knob.partly.map((text) => h("li", { key: text }, h("b", {}, knob.label), ` cannot be ${text}`));
    if (moved) said.unshift(changesPart(knob, id));
    return said;
  });
  return lines.length ? h("ul", { class: "gd-said" }, lines) : null;
}

function knobsPart(state, panel) {
  const { knobs: offered, busy, before } = state;
  const knobs = asTurned(offered, panel.chosen.num_workers);
  const front = knobs.filter((knob) => knob.front);
  const more = knobs.filter((knob) => !knob.front);
  const moved = Object.keys(panel.chosen).length;
  const unknown = knobs.length > 0 && knobs.every((knob) => !knob.choices.length || knob.choices[0].value === null);
  const act = (what, label, disabled, primary, why = null) => button(label, () => panel.ask(what), {
    class: primary ? "gd-primary" : "", "data-ask": what, title: SETTLED_BUTTONS[what], disabled: busy || unknown || disabled, "aria-describedby": why,
    onpointerenter: () => panel.near(), onfocus: () => panel.near(),
  });
  return h("section", { class: "gd-knobs" },
    h("div", { class: "gd-row" }, front.map((knob) => knobPart(knob, knobs, panel)),
      button(`more${more.some((knob) => panel.chosen[knob.name] !== undefined) ? " •" : ""}`, () => panel.fold("more"), {
        class: "gd-link", "aria-expanded": String(panel.unfolded.has("more")), "data-fold": "more",
      }),
      moved ? button("as written", () => panel.reset(), { class: "gd-link", title: "Reset every knob" }) : null,
      moved ? codeFold("code of these", "chosen", panel.chosen, panel) : null),
    panel.unfolded.has("more") ? h("div", { class: "gd-row gd-more", key: "more" }, more.map((knob) => knobPart(knob, knobs, panel))) : null,
    unknown ? h("div", { class: "gd-soft" }, knobs[0].refusal)
      : knobSentences(panel.unfolded.has("more") ? knobs : front, panel),
    h("div", { class: "gd-row gd-actions" },
      budgetPart(panel),
      act("trial", "Rerun as a trial", !moved, true),
      act("treat", "Treat: find the best safe settings", false),
      act("real", moved ? "Run for real with these settings" : "Run for real again", false),
      h("label", { class: "gd-tick" },
        h("input", { type: "checkbox", checked: panel.changesTraining, onchange: (event) => panel.setChanges(event.target.checked) }),
        "treat may change batch size and precision")),
    unknown ? null : furtherPart(state, act, panel),
    moved && panel.unfolded.has("chosen") ? fixPart(panel.chosen, "", panel) : null,
    unknown ? null : beforePart(before));
}

/** How long a trial is: steps of a side, and the seconds that it measures in all. */
function budgetPart(panel) {
  const told = `${panel.id}-budget`;
  const field = (what, label, most, step, min) => h("input", {
    type: "number", min, max: String(most), step, value: panel.budget[what], "data-budget": what, title: BUDGET,
    "aria-label": label, "aria-describedby": told, oninput: (event) => panel.setBudget(what, event.target.value),
  });
  return h("span", { class: "gd-steps", role: "group", "aria-label": "length of a trial" }, "trial of",
    field("steps", "steps of each side of a trial", MOST_STEPS, "5", "5"), "steps,",
    field("seconds", "seconds that a trial measures", MOST_SECONDS, "10", "1"), "s",
    h("span", { id: told, hidden: true }, BUDGET));
}

/** What a trial keeps and what it cannot put back, said before the click. */
function beforePart(before) {
  const said = before ?? [{ text: BEFORE, tone: "" }];
  return h("ul", { class: "gd-said gd-before" }, said.map((one) => h("li", { key: one.text, class: one.tone ? "gd-changes" : "" }, one.text)));
}

function findingPart(finding, index, state, panel) {
  return h("details", { key: finding.rule },
    h("summary", {}, h("span", { class: finding.risk ? "gd-share gd-risky" : "gd-share" }, finding.price), h("b", {}, finding.rule),
      h("span", {}, worded(finding.headline))),
    finding.risk ? h("div", { class: "gd-risk" }, finding.risk) : null,
    h("ul", {}, finding.evidence.map((text) => h("li", {}, worded(text)))),
    finding.prescriptions.map((one, number) => advicePart(
      { ...one, page: number === 0 ? finding.page : [] }, state.busy, panel, `${finding.rule}${number}`)));
}

/** Why some rules were not judged: one line, their names folded where they are many. */
function silencePart(one) {
  if (!one.folded) return h("div", { class: "gd-why", key: one.reason }, `${one.reason}: `, h("span", { class: "gd-soft" }, one.rules));
  return h("details", { class: "gd-why", key: one.reason },
    h("summary", {}, `${one.reason}: ${one.number} rules`), h("div", { class: "gd-soft" }, one.rules));
}

function findingsPart(state, panel) {
  const { findings, silent } = state;
  const unjudged = silent.reduce((sum, one) => sum + one.number, 0);
  return h("section", { class: "gd-findings" },
    findings.length ? h("div", { class: "gd-title" }, h("b", {}, "findings"), h("span", { class: "gd-soft" }, "share of the wall-clock; costs overlap")) : null,
    findings.map((finding, index) => findingPart(finding, index, state, panel)),
    silent.length ? h("details", { key: "silent" },
      h("summary", { class: "gd-soft" }, `not judged: ${unjudged} ${unjudged === 1 ? "rule" : "rules"}`),
      silent.map((one) => silencePart(one))) : null);
}

function footerPart({ footer }) {
  return h("footer", { class: "gd-footer" },
    footer.notes.length ? h("details", {}, h("summary", {}, footer.notes.length === 1 ? "1 note" : `${footer.notes.length} notes`),
      h("ul", {}, footer.notes.map((text) => h("li", {}, text)))) : null,
    footer.overhead ? h("span", { class: "gd-own" }, footer.overhead) : null);
}
