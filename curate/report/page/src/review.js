// What a reviewer decides: kept in the browser under the run's key, exported as JSON Lines, imported again.
//
// A row is a label as `curate agreement`, `calibrate` and `certify` read it (id, content, turn, dimension, value, rater), with
// what it replaces, when it was given and whether the judge's scores were hidden. A later answer to the same question by the
// same reviewer takes the place of the earlier one; an answer that is taken back goes.
import { computed, signal } from "@preact/signals";
import { anytime, anytimeBound, goodToCome } from "./audit.js";
import { count, draw, figures, rowOf, value } from "./data.js";

const PLACE = `curate-review:${figures.run.key}`;
const FORM = 1;

function stored() {
  try {
    return JSON.parse(localStorage.getItem(PLACE)) ?? {};
  } catch {
    return {};
  }
}

const begun = stored();
export const reviewing = signal(draw !== null);
export const blind = signal(draw !== null || (begun.blind ?? true));
export const rater = signal(begun.rater ?? "");
export const answers = signal(new Map(begun.answers ?? []));
export const unsaved = signal(begun.unsaved ?? 0);
export const isKept = signal(true);

function keep() {
  try {
    localStorage.setItem(PLACE, JSON.stringify({ blind: blind.value, rater: rater.value, answers: [...answers.value], unsaved: unsaved.value }));
    isKept.value = true;
  } catch {
    isKept.value = false;
  }
}

const LEVELS = ["1", "2", "3", "4", "5"];
// What is asked of a dialogue, of each of its turns or of a pair: name, choices, of_turns.
export const QUESTIONS = draw?.questions ?? [
  { name: "accept", choices: ["accept", "reject"] },
  { name: "coherence", choices: LEVELS },
  { name: "task_completion", choices: [...LEVELS, "n/a"] },
  { name: "repair_handling", choices: [...LEVELS, "n/a"] },
  ...["context_use", "helpfulness", "safety"].map((name) => ({ name, choices: LEVELS, of_turns: true })),
];
const rated = () => rater.value || "reviewer";

const keyOf = (row) => JSON.stringify([row.content, row.pair_id ?? null, row.turn ?? null, row.dimension, row.rater]);

export function setRater(name) {
  rater.value = name;
  keep();
}
export function setBlind(isOn) {
  blind.value = isOn;
  keep();
}

// Answer a question about a dialogue, one of its turns or pairs; an empty value takes the answer back.
export function answer(dialogue, { dimension, value, turn = null, old = null, pair = null }) {
  const row = {
    id: dialogue.id, content: dialogue.hash, turn, dimension, value, rater: rated(), old,
    time: new Date().toISOString(), blind: blind.value, form: FORM, ...(draw ? { draw: draw.id } : {}),
    ...(pair ? { pair_id: pair, ...(dimension === "better" ? { better: value } : {}) } : {}),
  };
  const next = new Map(answers.value);
  if (value === null || value === "") next.delete(keyOf(row));
  else next.set(keyOf(row), row);
  answers.value = next;
  unsaved.value += 1;
  keep();
}

export function answered(dialogue, dimension, turn = null, pair = null) {
  const held = answers.value.get(keyOf({ content: dialogue.hash, turn, dimension, pair_id: pair, rater: rated() }));
  return held?.value ?? null;
}

// What an answer is about, as the table names it: of a draw by its content or the pair, since an id may say too much.
const unitOf = (row) => (draw ? (draw.of_pairs ? row.pair_id : row.content) : row.id);
const ASKED = new Set(draw ? QUESTIONS.map(({ name }) => name) : ["accept"]);
const answerCounts = computed(() => {
  const counts = new Map();
  for (const row of answers.value.values()) if (row.rater === rated() && ASKED.has(row.dimension)) counts.set(unitOf(row), (counts.get(unitOf(row)) ?? 0) + 1);
  return counts;
});
// Whether the reviewer has said all that is asked; of a report whether to accept.
export const isDecided = (id) => (answerCounts.value.get(id) ?? 0) >= (draw ? value("asked", rowOf(id)) : 1);
const answeredPairs = computed(() => new Set([...answers.value.values()].filter((row) => row.dimension === "better" && row.rater === rated()).map((row) => row.pair_id)));
// Whether the reviewer is not to know yet which side of a pair is which; of a draw never.
export const isPairHidden = (id) => draw !== null || (reviewing.value && blind.value && !answeredPairs.value.has(id));
// Whether what the judge says of a dialogue is to be kept from the reviewer; a draw's file does not hold it.
export const isHidden = (id) => draw !== null || (reviewing.value && blind.value && !isDecided(id));

export function exportFile() {
  const text = [...answers.value.values()].map((row) => `${JSON.stringify(row)}\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = `${draw ? "labels" : "review"}-${figures.run.name}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  unsaved.value = 0;
  keep();
}

// Take the answers of a file; of two to the same question the later one counts. Returns what was done, in words.
export function importFile(text) {
  const rows = [];
  for (const [at, line] of text.split("\n").entries()) {
    if (!line.trim()) continue;
    try {
      const row = JSON.parse(line);
      if (!row.content || !row.dimension || !row.rater || !row.time) throw new Error();
      rows.push(row);
    } catch {
      return `Nothing was taken: line ${at + 1} is no answer of a review.`;
    }
  }
  const others = rows.filter((row) => !isHere(row));
  if (others.length) return `Nothing was taken: ${others.length} of ${rows.length} answers are about dialogues that this file does not have, or has with other content (${others[0].id}).`;
  const next = new Map(answers.value);
  let taken = 0;
  for (const row of rows) {
    const held = next.get(keyOf(row));
    if (held && held.time >= row.time) continue;
    next.set(keyOf(row), row);
    taken += 1;
  }
  answers.value = next;
  keep();
  return `${taken} of ${rows.length} answers taken; the others are here already.`;
}

// A dialogue of another part of the report may well be of the run.
function isHere(row) {
  const at = rowOf(unitOf(row));
  if (at === undefined) return figures.parts.length > 0;
  return row.content.startsWith(value("content", at));
}


// What all reviewers say of a unit: as `curate certify` counts it, as many noes as yeses are a no.
const isBad = (said) => {
  if (draw.of_pairs) {
    const count = (side) => said.filter((one) => one === side).length;
    return count("rejected") > count("chosen") && count("rejected") >= count("tie");
  }
  return 2 * said.filter((one) => ["accept", "good", "excellent"].includes(one)).length <= said.length;
};

// How far the answers go towards a certificate that may stop at any time: a share of bad ones and a confidence that were said with the draw. They count in
// the order of the draw, up to the last one; a unit without an answer before it counts as bad.
export const progress = computed(() => {
  if (!draw?.audit) return null;
  const { dimensions, size, risk, confidence } = draw.audit;
  const error = 1 - confidence;
  const said = new Map();
  for (const row of answers.value.values()) if (dimensions.includes(row.dimension)) said.set(unitOf(row), [...(said.get(unitOf(row)) ?? []), row.value]);
  const order = Array.from({ length: count() }, (_, row) => row).map((row) => value("id", row));
  const last = order.findLastIndex((id) => said.has(id));
  const seen = order.slice(0, last + 1);
  const bad = seen.map((id) => !said.has(id) || isBad(said.get(id)));
  const { evidence } = anytime(bad, risk, error, size);
  return {
    evidence, needed: 1 / error, isReached: evidence >= 1 / error, bound: anytimeBound(bad, error, size),
    good: bad.filter((one) => !one).length, bad: seen.filter((id, at) => said.has(id) && bad[at]).length,
    missing: seen.filter((id) => !said.has(id)).length, more: goodToCome(bad, risk, error, size),
  };
});

addEventListener("beforeunload", (event) => {
  if (unsaved.value > 0 && !isKept.value) event.preventDefault();
});
