// What kernel and page say to each other. Generated from gpu_doctor/report/contract.py: do not edit it, run
// python -m tools.typescript

/** A value of a knob; null where it is not known. */
export type Value = string | number | boolean | null;
/** Knob -> value. */
export type Settings = Record<string, string | number | boolean>;

/** All that the page should have: what it holds otherwise is no longer true. The answer to the ask `state`. */
export interface Whole {
  /**
   * Of every message to the page: one more than that of the message before. A page that misses one asks for the
   * state; what is older than what it has, it does not take.
   */
  seq: number;
  kind: "state";
  state: PanelState;
  rows: Points;
}

/** All that the page draws but the plots. */
export interface PanelState {
  status: "starting" | "waiting" | "recording" | "replaying" | "trial" | "treating" | "sweeping" | "searching" | "looking" | "idle";
  busy: boolean;
  message: string;
  labels: Labels;
  header: Header;
  /** null while no trial was clearly faster than the code as written. */
  result: Result | null;
  verdict: Verdict;
  anatomy: Anatomy;
  /** What is known to fill the memory: `model 98 MiB, one batch 19 MiB`; empty where nothing is. */
  filling: string;
  plan: Plan | null;
  sweep: Sweep | null;
  largest: Largest | null;
  look: Look | null;
  ranks: Ranks | null;
  table: Table;
  findings: Finding[];
  /** What nothing measured prices: risks first, then what is worth a trial. */
  hints: Finding[];
  silent: Silence[];
  footer: Footer;
  knobs: Knob[];
  /**
   * Of every single value that can be chosen, and of the settings that were asked for last; empty while the loop
   * as written was not measured.
   */
  forecasts: Forecast[];
  trial: Budget;
  /** Combinations that a sweep takes. */
  sweepMost: number;
  /** Why no sweep is offered; empty where it is. */
  noSweep: string;
  /** Why nothing can be run again here; empty if it can. */
  noTrials: string;
  /** Why the largest batch cannot be looked for; empty if it can. */
  noLargest: string;
  /** Why no ideal loader can be tried; empty if it can. */
  noIdeal: string;
  /** Changes that were unfolded, to be found by their settings. */
  fixes: Record<string, Fix>;
  /** null while nobody asked. */
  before: Said[] | null;
}

/** What both the static result and the panel write, as it stands within a line; sent with the panel's state. */
export interface Labels {
  product: string;
  asWritten: string;
  baseline: string;
  candidate: string;
  anatomy: string;
  losses: string;
  treatment: string;
  changed: string;
  dropped: string;
  byHand: string;
  paste: string;
  sweep: string;
  largest: string;
  look: string;
  notJudged: string;
}

/** The machine, and how far the run is. */
export interface Header {
  machine: string;
  /** That a recording is played, and how fast; empty for a run. */
  replay: string;
  /** In words. */
  status: string;
  /** The newest run broke, and nothing goes on. */
  failed: boolean;
  name: string;
  clock: string;
  steps: string;
  rate: string;
  /** What the side that runs is turned to; empty for the code as written. */
  settings: string;
  /** How to stop where a click is not heard while the cell runs; empty where it is. */
  stop: string;
  progress: Progress | null;
}

/** How far a trial is. */
export interface Progress {
  text: string;
  /** `step 12 of 50`. */
  steps: string;
  /** 0..1; 0 where its end is not known. */
  share: number;
  /** `at most 8 s left`; empty while nothing can be told. */
  left: string;
}

/** What the trials proved; it stands above the verdict, with what shows its code and uses it. */
export interface Result {
  /** `2.87x faster with num_workers=4, verified (2.7-3.0)`; `At least 2.3x ...` where the interval is wide. */
  text: string;
  /** What became of the losses, and how it was measured again, in sentences. */
  more: string;
  /** The training is not the same. */
  warns: boolean;
  settings: Settings;
}

/** The verdict and what to do first, or what it waits for. */
export interface Verdict {
  text: string;
  /** `input-bound`; empty while there is none. */
  kind: string;
  /** A colour. */
  accent: string;
  early: string;
  risk: string;
  advice: Advice | null;
}

/** What to try first, with the page of the rule that found it. */
export interface Advice {
  text: string;
  predicted: string;
  /** Empty where no knob does it. */
  settings: Settings;
  /** Lines to paste. */
  code: string;
  safety: string;
  changes: string;
  page: Paragraph[];
  /** It is that of a hint: worth a trial, and nothing measured says what it gives. */
  hint: boolean;
}

/** A part of the page of a cause. */
export interface Paragraph {
  /** Empty for the first. */
  title: string;
  /** Text between backticks is code. */
  text: string;
  /** All of `text` is code: it is shown as it is. */
  code: boolean;
}

/** Where a mean step goes. */
export interface Anatomy {
  total: string;
  /** What it is the mean of. */
  of: string;
  segments: Segment[];
  /** null before any trial. */
  compared: Compared | null;
  /** null where it was not measured. */
  ceiling: Ceiling | null;
}

/** One phase of a step. */
export interface Segment {
  phase: string;
  label: string;
  /** Of the whole bar's length, 0..1. */
  share: number;
  /** Of its own step. */
  percent: string;
  time: string;
  colour: string;
  /** The colour of letters on it. */
  ink: string;
}

/** Before and after: the newest trial's sides to one time scale, the baseline first. */
export interface Compared {
  of: string;
  sides: [Side, Side];
}

/** One side of a trial. */
export interface Side {
  /** Its settings: `as written`, `num_workers=4`. */
  label: string;
  /** Of a mean step; where its steps hold another number of samples, for as many as a step of the other side. */
  total: string;
  /** Their shares are of the time scale of both sides. */
  segments: Segment[];
  /** null where there are too few steps. */
  spread: Spread | null;
}

/** How long the steps of a trial's side took. */
export interface Spread {
  /** Its quantiles 5, 25, 50, 75 and 95 %, as parts (0..1) of the time scale of both sides' bars. */
  at: number[];
  text: string;
}

/** How long a step is with an ideal loader, as a trial measured it. */
export interface Ceiling {
  /** Of the mean step, 0 to 1. */
  share: number;
  text: string;
}

/** What a treatment arrived at. */
export interface Plan {
  sentence: string;
  steps: Step[];
  dropped: Dropped[];
  notes: string[];
  byHand: string[];
  /** What was kept. */
  settings: Settings;
  fix: Fix | null;
}

/** One bar of the waterfall, in words and in parts (0..1) of the longest bar. */
export interface Step {
  label: string;
  /** How fast the loop is with all that is kept so far: `2.31x`. */
  total: string;
  /** What this step gave, with its interval: `x2.31 (2.1-2.5)`; empty for the first. */
  gain: string;
  /** Part of the longest bar that was there before this step (for a step that lost, what is left after it). */
  before: number;
  /** Part that this step added; negative for a step that lost. */
  added: number;
  /** Not a further step: all that is kept, measured once more against the code as written. */
  whole: boolean;
  /** What became of the losses: `loss the same in every step`. */
  losses: string;
}

/** One trial whose settings were not kept. */
export interface Dropped {
  label: string;
  why: string;
}

/** The change of the user's cells for some settings. */
export interface Fix {
  /** Of the diff: kind (removed, added, same, head, place) and text. */
  lines: ([string, string])[];
  cells: FixCell[];
  notes: string[];
  /** Lines to paste by hand. */
  paste: string;
  /** The cells above have all of it. */
  complete: boolean;
  /** Why there is none. */
  error: string;
  settings: Settings;
}

/** A cell of the user's with the change. */
export interface FixCell {
  label: string;
  text: string;
}

/** What a sweep found. */
export interface Sweep {
  sentence: string;
  rows: Swept[];
  /** So many are drawn at once, after the code as written. */
  first: number;
  /** What the others are folded under: `3 more combinations`. */
  later: string;
  notes: string[];
  /** Of the best; empty where none is verified. */
  settings: Settings;
}

/** One combination of a sweep. */
export interface Swept {
  setting: string;
  /** Such as `waiting`, `running`, `measured`, `stopped early`, `failed`. */
  state: string;
  /** Such as `382 samples/s`; empty where nothing was measured. */
  rate: string;
  /** Beside the code as written on the same machine: `2.31x (2.1-2.5) faster`; empty where nothing was measured. */
  gain: string;
  losses: string;
  /** Why it ended so, and where it was measured if that is not this machine. */
  note: string;
  /** Part (0..1) of the longest bar. */
  share: number;
  /** Measured clearly faster than the code as written, with losses that stay finite. */
  faster: boolean;
  best: boolean;
}

/** What the search for the largest batch found. */
export interface Largest {
  sentence: string;
  sizes: Size[];
  notes: string[];
  settings: Settings;
}

/** One batch size that was seen. */
export interface Size {
  label: string;
  /** Its peak of memory, such as `61.0 GiB`; empty where it did not fit. */
  peak: string;
  /** Its samples a second, and what it is: the largest that fits, the best for samples/s. */
  said: string;
  /** Peak over what the process may take of the card's memory (0..1). */
  share: number;
  chosen: boolean;
}

/** What a deep look found: operators in the form of `Size`, with their share of the step in the place of memory. */
export interface Look {
  sentence: string;
  operators: Size[];
  notes: string[];
}

/** The ranks that the cell has started, side by side. */
export interface Ranks {
  sentence: string;
  /** What is wrong, and what to do about it. */
  remarks: ([string, string])[];
  head: string[];
  rows: string[][];
  notes: string[];
}

/** The runs and trials. */
export interface Table {
  head: string[];
  rows: Cell[][];
  /** What each row unfolds. */
  details: (Unfolded | null)[];
}

/** A cell of the table. */
export interface Cell {
  text: string;
  tone: "" | "good" | "bad";
  /** What it says when it is pointed at; reports that cannot be pointed at go without. */
  title: string;
  /** Beside the text, smaller: what a step of a climb gave over the step before; empty for most. */
  small: string;
}

/** What a trial's row unfolds. */
export interface Unfolded {
  /** Both sides' losses as the address of an image; empty where there is nothing to draw. */
  losses: string;
  warns: boolean;
  judged: string[];
  notes: string[];
  settings: Settings;
  measured: string;
}

/** A finding or a hint with its price, its evidence and its cures. */
export interface Finding {
  kind: "lost" | "at-most" | "hint";
  /** Of the wall-clock, 0..1; null where nothing measured prices it. */
  share: number | null;
  headline: string;
  /** `lost 34 %`, `at most 21 %`, `worth a trial`. */
  price: string;
  risk: string;
  evidence: string[];
  prescriptions: Prescription[];
  rule: string;
  page: Paragraph[];
}

/** What to try. */
export interface Prescription {
  text: string;
  predicted: string;
  /** Empty where no knob does it. */
  settings: Settings;
  /** Lines to paste. */
  code: string;
  safety: string;
  changes: string;
}

/** Causes that could not be judged, for one reason. */
export interface Silence {
  reason: string;
  /** `9 causes`. */
  count: string;
  rules: string;
  /** They are too many to be named at once. */
  folded: boolean;
}

/** What measuring cost, and the notes. */
export interface Footer {
  overhead: string;
  notes: string[];
  /** `3 notes`. */
  title: string;
}

/** A knob. */
export interface Knob {
  choices: Choice[];
  /** Why the knob cannot be turned at all; empty if it can. */
  refusal: string;
  /** Where only some values cannot be had: which, and why, in words that follow its label. */
  partly: string[];
  name: string;
  label: string;
  /** It stands in the first row. */
  front: boolean;
  safe: boolean;
  /** What turning it does to the training, in words that follow its label. */
  turned: string;
  written: Value;
  /** Why it cannot be turned where no workers are chosen; empty where it can. */
  needsWorkers: string;
}

/** A value of a knob. */
export interface Choice {
  /** null where the value as written is not known. */
  value: Value;
  label: string;
  /** Why it cannot be chosen; empty if it can. */
  refusal: string;
}

/** What settings should give, against the code as written. */
export interface Forecast {
  settings: Settings;
  /** `predicted 1.9x (1.5-2.4)`, `measured 1.8x (1.7-1.9) in trial 2`, or that there is no forecast. */
  text: string;
  /** There is a forecast, or a measurement. */
  known: boolean;
}

/** How long a trial is at first, and at most. */
export interface Budget {
  steps: number;
  seconds: number;
  mostSteps: number;
  mostSeconds: number;
}

/** A sentence to know before a trial. */
export interface Said {
  text: string;
  tone: "" | "good" | "bad";
  /** The permission that lifts this refusal, as `allow=` of a trial names it; empty = none does, or it is none. */
  allow: string;
  /** Label of the box that gives it. */
  tick: string;
}

/** What to do with the points in a message's buffer: for every line its x, then its y, as float32. */
export interface Points {
  /** Layers whose points go first: `base` (the run, or a trial's baseline), `trial` (a candidate). */
  clear: string[];
  /** Layer, key of the line in the figure, number of points, and whether they replace those that are there. */
  lines: ([string, string, number, boolean])[];
  /** Layer -> what the legend calls it. */
  names: Record<string, string>;
  /** Of the x axis, in seconds. */
  end: number;
  /** Plot -> the end of its y axis. */
  tops: Record<string, number | null>;
  epochs: number[];
  evaluations: number[];
}

/** What has changed since the message before. */
export interface News {
  seq: number;
  kind: "news";
  /** Sections that changed, each whole. */
  state: Partial<PanelState>;
  rows: Points;
}

/** A message of the page. */
export interface Ask {
  ask: "stop" | "trial" | "treat" | "sweep" | "largest" | "ideal" | "look" | "fix" | "forecast" | "before" | "state";
  /** With `trial`, `fix` and `forecast`. */
  settings?: Settings;
  /** With `sweep`: the values of each knob. */
  grid?: Record<string, (string | number | boolean)[]>;
  /** Of a side of a trial; missing = the case has its own. */
  steps?: number;
  seconds?: number;
  /** With `treat`: batch size and precision may be tried as well. */
  changes_training?: boolean;
  /** With what runs the cell again: the permissions whose boxes are ticked. */
  allow?: string[];
}
