// What a reviewer decides: kept in the browser under the run's key, exported as JSON Lines, imported again.
//
// A row is a label as `curate agreement`, `calibrate` and `certify` read it (id, content, turn, dimension, value, rater), with
// what it replaces, when it was given and whether the judge's scores were hidden. A later answer to the same question by the
// same reviewer takes the place of the earlier one; an answer that is taken back goes.
import { computed, signal } from "@preact/signals";
import { figures, rowOf } from "./data.js";
import { drawn } from "./state.js";

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
export const reviewing = signal(false);
export const blind = signal(begun.blind ?? true);
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
    id: dialogue.id, content: dialogue.hash, turn, dimension, value, rater: rater.value || "reviewer", old,
    time: new Date().toISOString(), blind: blind.value, form: FORM,
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
  const held = answers.value.get(keyOf({ content: dialogue.hash, turn, dimension, pair_id: pair, rater: rater.value || "reviewer" }));
  return held?.value ?? null;
}

const decidedIds = computed(() => new Set([...answers.value.values()].filter((row) => row.dimension === "accept" && row.rater === (rater.value || "reviewer")).map((row) => row.id)));
export const isDecided = (id) => decidedIds.value.has(id);
// Whether what the judge says of a dialogue is to be kept from the reviewer.
export const isHidden = (id) => reviewing.value && blind.value && !isDecided(id);

export function exportFile() {
  const text = [...answers.value.values()].map((row) => `${JSON.stringify(row)}\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = `review-${figures.run.name}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  unsaved.value = 0;
  keep();
}

// Take the answers of a file; of two to the same question the later one counts. Returns what was done, in words.
export function importFile(text) {
  const rows = [];
  const order = [];
  for (const [at, line] of text.split("\n").entries()) {
    if (!line.trim()) continue;
    try {
      const row = JSON.parse(line);
      if (row.draw && !row.time) {
        order.push(row.id);
        continue;
      }
      if (!row.content || !row.dimension || !row.rater || !row.time) throw new Error();
      rows.push(row);
    } catch {
      return `Nothing was taken: line ${at + 1} is no answer of a review.`;
    }
  }
  if (order.length) return showDraw([...new Set(order)]);
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

// Show the dialogues that `curate sample` drew, in its order, and those alone.
function showDraw(ids) {
  const found = ids.map(rowOf).filter((row) => row !== undefined);
  if (found.length < ids.length) return `Nothing was taken: ${ids.length - found.length} of the ${ids.length} drawn dialogues are not in this file.`;
  drawn.value = found;
  return `The list holds the ${ids.length} dialogues of the draw, in its order.`;
}

const RISK = 0.1;
const ERROR = 0.1;

// How far the answers go towards a certificate that may stop at any time: at most 10 % bad, with 90 % confidence. Answers count
// in the order of the draw, up to the first dialogue without one. E = product of p/a for a bad one and (1-p)/(1-a) for a good
// one, p = a/3; certified where it reaches 1/d (a test martingale, Ville's inequality).
export function progress(ids) {
  const said = new Map([...answers.value.values()].filter((row) => row.dimension === "accept" && row.rater === (rater.value || "reviewer")).map((row) => [row.id, row.value]));
  let [e, good, bad, isReached] = [1, 0, 0, false];
  for (const id of ids) {
    const value = said.get(id);
    if (value === undefined) break;
    if (value === "reject") (bad += 1), (e *= 1 / 3);
    else (good += 1), (e *= (1 - RISK / 3) / (1 - RISK));
    isReached ||= e >= 1 / ERROR;
  }
  return { e, good, bad, isReached, needed: 1 / ERROR };
}

addEventListener("beforeunload", (event) => {
  if (unsaved.value > 0 && !isKept.value) event.preventDefault();
});
