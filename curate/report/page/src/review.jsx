// The parts of the page with which a reviewer answers.
import { signal } from "@preact/signals";
import { useLayoutEffect, useState } from "preact/hooks";
import { drawn, go, rows, place } from "./state.js";
import { rowOf, value as columnValue } from "./data.js";
import { answer, answered, answers, blind, exportFile, importFile, isDecided, isKept, progress, rater, reviewing, setBlind, setRater, unsaved } from "./review.js";
import { Calls } from "./message.jsx";
import { Plain, plural, spoken } from "./text.jsx";

const told = signal("");

// Over the list: who reviews, how, and the file.
export function ReviewBar() {
  if (!reviewing.value) return <div class="review-bar"><button onClick={() => (reviewing.value = true)}>Review</button></div>;
  const open = async (event) => {
    const [file] = event.target.files;
    if (file) told.value = importFile(await file.text());
    event.target.value = "";
  };
  return (
    <div class="review-bar">
      <div class="choices">
        <label>Reviewer <input value={rater.value} placeholder="your name" onInput={(event) => setRater(event.target.value.trim())} /></label>
        <label><input type="checkbox" checked={blind.value} onChange={(event) => setBlind(event.target.checked)} /> hide the judge's scores until I have decided</label>
        <button onClick={exportFile} disabled={!answers.value.size}>Export {plural(answers.value.size, "answer")}</button>
        <label class="file">Import <input type="file" accept=".jsonl" onChange={open} /></label>
        <button onClick={() => (reviewing.value = false)}>Leave the review</button>
      </div>
      <p class="note" aria-live="polite">
        {drawn.value && <Progress />}{unsaved.value > 0 ? `${plural(unsaved.value, "change")} since the last export; ${isKept.value ? "kept in this browser" : "this browser keeps nothing, export before you leave"}.` : "All is exported."} {told.value}
      </p>
    </div>
  );
}

function Progress() {
  const { e, good, bad, isReached, needed } = progress(drawn.value.map((row) => columnValue("id", row)));
  return (
    <>
      In the order of the draw: {good} accepted, {bad} rejected; evidence {e.toFixed(2)} of {needed} that at most 10 % are bad{isReached ? " – reached, with 90 % confidence" : ""}. <button onClick={() => (drawn.value = null)}>Show all dialogues</button>{" "}
    </>
  );
}

// The next dialogue of the list that has no decision.
export function nextOpen() {
  const { id } = place.value;
  const list = rows.value;
  const at = id === null ? -1 : list.indexOf(rowOf(id));
  const next = [...list.slice(at + 1), ...list.slice(0, at + 1)].find((row) => !isDecided(columnValue("id", row)));
  if (next !== undefined) go("dialogue", columnValue("id", next));
}

let choose = null;
// Decide about the dialogue that is open, by a key.
export const decide = (isGood) => reviewing.value && choose?.(isGood ? "accept" : "reject");

export function Decision({ dialogue, decided }) {
  // With the dialogue on the screen, not after it: a key may come at once.
  useLayoutEffect(() => {
    const own = (choose = (value) => answer(dialogue, { dimension: "accept", value, old: decided }));
    return () => {
      if (choose === own) choose = null;
    };
  }, [dialogue, decided]);
  if (!reviewing.value) return null;
  const said = answered(dialogue, "accept");
  const weakest = answered(dialogue, "weakest_turn");
  const numbers = dialogue.turns.map(([number]) => number).filter((number) => number > 0);
  const toggle = (value) => answer(dialogue, { dimension: "accept", value: said === value ? null : value, old: decided });
  return (
    <section class="decision" aria-label="your decision">
      <div class="choices">
        <button class={said === "accept" ? "on good" : ""} aria-pressed={said === "accept"} onClick={() => toggle("accept")}>Accept <kbd>1</kbd></button>
        <button class={said === "reject" ? "on bad" : ""} aria-pressed={said === "reject"} onClick={() => toggle("reject")}>Reject <kbd>2</kbd></button>
        <label>Weakest turn <select value={weakest ?? ""} onChange={(event) => answer(dialogue, { dimension: "weakest_turn", value: event.target.value === "" ? null : Number(event.target.value), old: dialogue.judge?.weakest_turn ?? null })}>
          <option value="">not said</option>{numbers.map((number) => <option key={number} value={number}>{number}</option>)}
        </select></label>
        {["coherence", "task_completion", "repair_handling"].map((name) => <Score key={name} dialogue={dialogue} dimension={name} old={dialogue.judge?.conversation_level?.[name]?.score ?? null} />)}
        <button onClick={nextOpen}>Next without a decision <kbd>Ctrl Enter</kbd></button>
      </div>
      <label class="note-field">Note <textarea rows="2" value={answered(dialogue, "note") ?? ""} onInput={(event) => answer(dialogue, { dimension: "note", value: event.target.value })} /></label>
    </section>
  );
}

// What a score should be; empty where the reviewer says nothing.
export function Score({ dialogue, dimension, turn = null, old = null }) {
  if (!reviewing.value) return null;
  const levels = ["1", "2", "3", "4", "5", ...(["task_completion", "repair_handling"].includes(dimension) ? ["n/a"] : [])];
  const set = (event) => answer(dialogue, { dimension, turn, old, value: event.target.value === "" ? null : event.target.value === "n/a" ? "n/a" : Number(event.target.value) });
  return (
    <label class="score-field">{spoken(dimension)} <select value={answered(dialogue, dimension, turn) ?? ""} onChange={set}>
      <option value="">–</option>{levels.map((level) => <option key={level} value={level}>{level}</option>)}
    </select></label>
  );
}

export const TurnReview = ({ dialogue, turn, scores }) => reviewing.value && turn > 0 && (
  <div class="choices turn-review">Yours: {["context_use", "helpfulness", "safety"].map((name) => <Score key={name} dialogue={dialogue} dimension={name} turn={turn} old={scores?.[name] ?? null} />)}</div>
);

// Which side comes first says nothing: it follows from the pair's id alone.
const isTurned = (id) => [...id].reduce((sum, sign) => (sum * 31 + sign.codePointAt(0)) >>> 0, 7) % 2 === 1;

export const isPairOpen = (dialogue, pair) => reviewing.value && blind.value && pair.chosen && answered(dialogue, "better", pair.turn ?? null, pair.pair_id) === null;

// Both sides without a word of which is which, until one is called better.
export function BlindPair({ dialogue, pair }) {
  const order = isTurned(pair.pair_id) ? ["rejected", "chosen"] : ["chosen", "rejected"];
  const choose = (value) => answer(dialogue, { dimension: "better", value, turn: pair.turn ?? null, pair: pair.pair_id, old: pair.drop_reason ? "dropped" : "chosen" });
  return (
    <section class="pair" id={`pair-${pair.pair_id}`} aria-label="pair, sides hidden">
      <h4>Which reply is better?</h4>
      <div class="sides">{order.map((name, at) => <div class="side" key={name}><h5>{"AB"[at]}</h5><div class="text" dir="auto"><Plain>{pair[name].content ?? ""}</Plain></div><Calls calls={pair[name].tool_calls} /></div>)}</div>
      <p class="choices"><button onClick={() => choose(order[0])}>A is better</button><button onClick={() => choose(order[1])}>B is better</button><button onClick={() => choose("tie")}>Neither</button></p>
    </section>
  );
}

// Beside a pair whose sides are known: take the answer back, or write the chosen side anew.
export function PairReview({ dialogue, pair }) {
  const [isOpen, setOpen] = useState(false);
  if (!reviewing.value || !pair.chosen) return null;
  const turn = pair.turn ?? null;
  const better = answered(dialogue, "better", turn, pair.pair_id);
  const text = answered(dialogue, "chosen_text", turn, pair.pair_id);
  return (
    <div class="choices">
      <label>Better side <select value={better ?? ""} onChange={(event) => answer(dialogue, { dimension: "better", value: event.target.value, turn, pair: pair.pair_id })}>
        <option value="">not said</option><option value="chosen">chosen</option><option value="rejected">rejected</option><option value="tie">neither</option>
      </select></label>
      <button onClick={() => setOpen(!isOpen)}>{text === null ? "Edit the chosen text" : "Your text"}</button>
      {isOpen && <label class="note-field">Chosen text <textarea rows="6" value={text ?? pair.chosen.content ?? ""} onInput={(event) => answer(dialogue, { dimension: "chosen_text", value: event.target.value === pair.chosen.content ? null : event.target.value, turn, pair: pair.pair_id, old: pair.chosen.content })} /></label>}
    </div>
  );
}
