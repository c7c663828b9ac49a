// What kernel and page say to each other. Generated from gpu_doctor/report/contract.py: do not edit it, run
// python -m tools.typescript

/** A value of a knob; null where it is not known. */
export type Value = string | number | boolean | null;
/** Knob -> value. */
export type Settings = Record<string, string | number | boolean>;

/** The whole state, which replaces everything on the page; the answer to the request `state`. */
export interface Whole {
  /**
   * Number of the message, one more than that of the message before. A page that misses a number requests the
   * state; it ignores messages older than its own.
   */
  seq: number;
  kind: "state";
  state: PanelState;
  rows: Points;
}

/** Everything that the page draws except the plots. */
export interface PanelState {
  status: "starting" | "waiting" | "recording" | "replaying" | "trial" | "treating" | "sweeping" | "searching" | "looking" | "idle";
  busy: boolean;
  message: string;
  labels: Labels;
  header: Header;
  /** Proven result; null while no trial was clearly faster than the code as written. */
  result: Result | null;
  verdict: Verdict;
  anatomy: Anatomy;
  /** Known contents of the memory, `model 98 MiB, one batch 19 MiB`; empty if nothing is known. */
  filling: string;
  plan: Plan | null;
  sweep: Sweep | null;
  largest: Largest | null;
  look: Look | null;
  ranks: Ranks | null;
  table: Table;
  findings: Finding[];
  /** Findings that no measurement prices: risks first, then what is worth a trial. */
  hints: Finding[];
  silent: Silence[];
  footer: Footer;
  knobs: Knob[];
  /**
   * Forecasts for every single value that can be chosen and for the settings requested last; empty until the loop
   * as written was measured.
   */
  forecasts: Forecast[];
  trial: Budget;
  /** Largest number of combinations in a sweep. */
  sweepMost: number;
  /** Reason why no sweep is offered; empty if one is. */
  noSweep: string;
  /** Reason why the cell cannot be rerun; empty if it can. */
  noTrials: string;
  /** Reason why the search for the largest batch is not offered; empty if it is. */
  noLargest: string;
  /** Reason why no ideal loader can be tried; empty if one can. */
  noIdeal: string;
  /** Changes that the user has unfolded, by their settings. */
  fixes: Record<string, Fix>;
  /** Sentences to read before a trial; null until the page requests them. */
  before: Notice[] | null;
}

/** Labels that both the static result and the panel use, in lower case; sent with the panel's state. */
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

/** The panel's header: the machine, and the state of the run. */
export interface Header {
  machine: string;
  /** Speed of the replay, `replay at 4x`; empty for a live run. */
  replay: string;
  /** Status in words. */
  status: string;
  /** True if the newest run failed and nothing is running. */
  failed: boolean;
  name: string;
  clock: string;
  steps: string;
  rate: string;
  /** Settings of the run or side in progress; empty for the code as written. */
  settings: string;
  /** How to interrupt the kernel, if it cannot receive a click on Stop while the cell runs; else empty. */
  stop: string;
  progress: Progress | null;
}

/** The progress of a trial or a sweep. */
export interface Progress {
  text: string;
  /** Steps so far, `step 12 of 50`. */
  steps: string;
  /** Part done, 0 to 1; 0 if the end is unknown. */
  share: number;
  /** Remaining time, `at most 8 s left`; empty while it is unknown. */
  left: string;
}

/** The proven result of the trials, shown above the verdict with buttons to show its code and apply it. */
export interface Result {
  /** `2.87x faster with num_workers=4, verified (2.7-3.0)`; `At least 2.3x ...` if the interval is wide. */
  text: string;
  /** Sentences on how the losses compare and how the result was verified. */
  more: string;
  /** True if the change alters the training. */
  warns: boolean;
  settings: Settings;
}

/** The verdict with the first advice, or what the verdict still waits for. */
export interface Verdict {
  text: string;
  /** Bottleneck, such as `input-bound`; empty while there is no verdict. */
  kind: string;
  /** CSS colour of the verdict. */
  accent: string;
  early: string;
  risk: string;
  advice: Advice | null;
}

/** The prescription to try first, with the page of the rule that found its cause. */
export interface Advice {
  text: string;
  predicted: string;
  /** Settings that apply it; empty if no knob does. */
  settings: Settings;
  /** Lines of code to paste. */
  code: string;
  safety: string;
  changes: string;
  page: Paragraph[];
  /** True if it belongs to a hint: worth a trial, but no measurement prices it. */
  hint: boolean;
}

/** A paragraph of the page that explains a cause. */
export interface Paragraph {
  /** Title; empty for the first paragraph. */
  title: string;
  /** Text, with code between backticks. */
  text: string;
  /** True if all of `text` is code, to be shown unchanged. */
  code: boolean;
}

/** The anatomy of a mean step: its time by phase. */
export interface Anatomy {
  total: string;
  /** Steps that the mean covers, `mean of 50 steps, 10 of warm-up left out`. */
  of: string;
  segments: Segment[];
  /** Before and after the newest trial; null before any. */
  compared: Compared | null;
  /** Step time with an ideal loader; null if no trial measured it. */
  ceiling: Ceiling | null;
}

/** One phase of a step. */
export interface Segment {
  phase: string;
  label: string;
  /** Part of the whole bar's length, 0 to 1. */
  share: number;
  /** Part of its own step, in percent. */
  percent: string;
  time: string;
  colour: string;
  /** CSS colour of text on the segment. */
  ink: string;
}

/** Before and after: both sides of the newest trial on one time scale, the baseline first. */
export interface Compared {
  of: string;
  sides: [Side, Side];
}

/** One side of a trial. */
export interface Side {
  /** Settings of the side: `as written`, `num_workers=4`. */
  label: string;
  /** Mean step time. If the batch size differs, it is scaled to the baseline's batch. */
  total: string;
  /** Phases of the mean step, whose shares are parts of the time scale of both sides. */
  segments: Segment[];
  /** Spread of the step times; null if there are too few steps. */
  spread: Spread | null;
}

/** The spread of step times on one side of a trial. */
export interface Spread {
  /** Step times at the quantiles 5, 25, 50, 75 and 95 %, as parts (0 to 1) of the time scale of both sides' bars. */
  at: number[];
  text: string;
}

/** The step time with an ideal loader, as a trial measured it. */
export interface Ceiling {
  /** Part of the mean step that remains with an ideal loader, 0 to 1. */
  share: number;
  text: string;
}

/** The plan that a treatment arrived at. */
export interface Plan {
  sentence: string;
  steps: Step[];
  dropped: Dropped[];
  notes: string[];
  byHand: string[];
  /** Settings of the plan. */
  settings: Settings;
  fix: Fix | null;
}

/** A bar of the waterfall, in words and as parts (0 to 1) of the longest bar. */
export interface Step {
  label: string;
  /** Speed-up with all settings so far, `2.31x`. */
  total: string;
  /** Gain of this step with its interval, `x2.31 (2.1-2.5)`; empty for the first step. */
  gain: string;
  /** Part of the longest bar before this step; for a step that lost speed, the part that remains after it. */
  before: number;
  /** Part that this step added; negative for a step that lost speed. */
  added: number;
  /** True if this is no further step, but all settings measured again against the code as written. */
  whole: boolean;
  /** Comparison of the losses, `loss the same in every step`. */
  losses: string;
}

/** A trial whose settings were dropped, with the reason. */
export interface Dropped {
  label: string;
  why: string;
}

/** The change to the user's cells that some settings need. */
export interface Fix {
  /** Lines of the diff: kind (removed, added, same, head, place) and text. */
  lines: ([string, string])[];
  cells: FixCell[];
  notes: string[];
  /** Lines of code to paste by hand. */
  paste: string;
  /** True if the changed cells contain the whole change. */
  complete: boolean;
  /** Reason why there is no change; empty if there is one. */
  error: string;
  settings: Settings;
}

/** A cell of the user with the change applied. */
export interface FixCell {
  label: string;
  text: string;
}

/** The result of a sweep. */
export interface Sweep {
  sentence: string;
  rows: SweepRow[];
  /** Number of combinations drawn before the fold, after the row of the code as written. */
  first: number;
  /** Title of the folded rest, `3 more combinations`. */
  later: string;
  notes: string[];
  /** Settings of the best combination; empty if none was verified. */
  settings: Settings;
}

/** One combination of a sweep, as a row of its table. */
export interface SweepRow {
  setting: string;
  /** State of the combination: `waiting`, `running`, `measured`, `stopped early`, `failed`. */
  state: string;
  /** Throughput, `382 samples/s`; empty if it was not measured. */
  rate: string;
  /** Speed over the code as written on the same machine, `2.31x (2.1-2.5) faster`; empty if it was not measured. */
  gain: string;
  losses: string;
  /** Reason for its state, and the machine that measured it if that is not this one. */
  note: string;
  /** Length of the bar as a part of the longest, 0 to 1. */
  share: number;
  /** True if it was clearly faster than the code as written and its losses stayed finite. */
  faster: boolean;
  best: boolean;
}

/** The result of the search for the largest batch. */
export interface Largest {
  sentence: string;
  sizes: Size[];
  notes: string[];
  settings: Settings;
}

/** One batch size that was tried. */
export interface Size {
  label: string;
  /** Peak memory, `61.0 GiB`; empty if it did not fit. */
  peak: string;
  /** Samples per second, and marks such as `largest that fits`, `best for samples/s`. */
  said: string;
  /** Peak memory over the memory that the process may use on the card, 0 to 1. */
  share: number;
  chosen: boolean;
}

/** The result of a deep look: operators in the form of `Size`, with their share of the step in place of memory. */
export interface Look {
  sentence: string;
  operators: Size[];
  notes: string[];
}

/** The ranks that the cell started, side by side. */
export interface Ranks {
  sentence: string;
  /** Problems of the job, each with what to do about it. */
  remarks: ([string, string])[];
  head: string[];
  rows: string[][];
  notes: string[];
}

/** The table of runs and trials. */
export interface Table {
  head: string[];
  rows: Cell[][];
  /** Details that each row unfolds; null for a row without. */
  details: (Unfolded | null)[];
}

/** A cell of the table of runs and trials. */
export interface Cell {
  text: string;
  tone: "" | "good" | "bad";
  /** Text of the tooltip; static reports leave it out. */
  title: string;
  /** Small text behind the main text: the gain of a treatment's step over the step before; usually empty. */
  small: string;
}

/** The details that a trial's row unfolds. */
export interface Unfolded {
  /** Address of an image of both sides' losses; empty if there is nothing to draw. */
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
  /** Part of the wall-clock that it costs, 0 to 1; null if no measurement prices it. */
  share: number | null;
  headline: string;
  /** Price in words: `lost 34 %`, `at most 21 %`, `worth a trial`. */
  price: string;
  risk: string;
  evidence: string[];
  prescriptions: Prescription[];
  rule: string;
  page: Paragraph[];
}

/** A prescription: something to try. */
export interface Prescription {
  text: string;
  predicted: string;
  /** Settings that apply it; empty if no knob does. */
  settings: Settings;
  /** Lines of code to paste. */
  code: string;
  safety: string;
  changes: string;
}

/** The causes that could not be judged for one reason. */
export interface Silence {
  reason: string;
  /** Number of causes, `9 causes`. */
  count: string;
  rules: string;
  /** True if they are too many to list unfolded. */
  folded: boolean;
}

/** The panel's footer: the overhead of measuring, and the notes. */
export interface Footer {
  overhead: string;
  notes: string[];
  /** Title of the notes, `3 notes`. */
  title: string;
}

/** A knob as the panel shows it. */
export interface Knob {
  choices: Choice[];
  /** Reason why the knob cannot be turned at all; empty if it can. */
  refusal: string;
  /** Phrases that follow the label and say which values cannot be chosen and why; empty if all or none can. */
  partly: string[];
  name: string;
  label: string;
  /** True if the knob stands in the first row. */
  front: boolean;
  safe: boolean;
  /** Effect of turning the knob on the training, as a phrase that follows its label. */
  turned: string;
  written: Value;
  /** Reason why the knob needs workers, shown while none are chosen; empty if it needs none. */
  needsWorkers: string;
}

/** A value that a knob offers. */
export interface Choice {
  /** The value; null stands for the value as written, if that is unknown. */
  value: Value;
  label: string;
  /** Reason why the value cannot be chosen; empty if it can. */
  refusal: string;
}

/** The forecast for some settings: their speed over the code as written. */
export interface Forecast {
  settings: Settings;
  /** `predicted 1.9x (1.5-2.4)`, `measured 1.8x (1.7-1.9) in trial 2`, or a phrase that says there is none. */
  text: string;
  /** True if there is a forecast or a measurement. */
  known: boolean;
}

/** The budget of a trial: the default and the largest number of steps and seconds. */
export interface Budget {
  steps: number;
  seconds: number;
  mostSteps: number;
  mostSeconds: number;
}

/** A sentence to read before a trial. */
export interface Notice {
  text: string;
  tone: "" | "good" | "bad";
  /** Permission that lifts this refusal, as `allow=` of a trial names it; empty if none does or nothing is refused. */
  allow: string;
  /** Label of the checkbox that gives the permission. */
  tick: string;
}

/** Describes the points in a message's buffer, which holds each line's x and then its y as float32. */
export interface Points {
  /** Layers to empty first: `base` (the run, or a trial's baseline), `trial` (a candidate). */
  clear: string[];
  /** Layer, key of the line in the figure, number of points, and True if they replace the points on the page. */
  lines: ([string, string, number, boolean])[];
  /** Layer -> its name in the legend. */
  names: Record<string, string>;
  /** End of the x axis, in seconds. */
  end: number;
  /** Plot -> upper end of its y axis; null to fit the data. */
  tops: Record<string, number | null>;
  epochs: number[];
  evaluations: number[];
}

/** The changes since the message before. */
export interface News {
  seq: number;
  kind: "news";
  /** Sections that changed, each complete. */
  state: Partial<PanelState>;
  rows: Points;
}

/** A request of the page. */
export interface Request {
  ask: "stop" | "trial" | "treat" | "sweep" | "largest" | "ideal" | "look" | "fix" | "forecast" | "before" | "state";
  /** Settings of a `trial`, `fix` or `forecast`. */
  settings?: Settings;
  /** Values of each knob in a `sweep`. */
  grid?: Record<string, (string | number | boolean)[]>;
  /** Steps of each side of a trial; the case's own number if missing. */
  steps?: number;
  seconds?: number;
  /** True if a `treat` may also try batch size and precision. */
  changes_training?: boolean;
  /** Permissions whose checkboxes are ticked, for requests that rerun the cell. */
  allow?: string[];
}
