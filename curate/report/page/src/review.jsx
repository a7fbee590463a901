// The parts of the page with which a reviewer answers.
import { signal } from "@preact/signals";
import { useLayoutEffect, useState } from "preact/hooks";
import { go, rows, place } from "./state.js";
import { count, draw, rowOf, value as columnValue } from "./data.js";
import { QUESTIONS, answer, answered, answers, blind, exportFile, importFile, isDecided, isKept, isPairHidden, progress, rater, reviewing, setBlind, setRater, unsaved } from "./review.js";
import { Calls } from "./message.jsx";
import { Plain, digits, plural, spoken } from "./text.jsx";

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
        {!draw && <label><input type="checkbox" checked={blind.value} onChange={(event) => setBlind(event.target.checked)} /> hide the judge's scores until I have decided</label>}
        <button onClick={exportFile} disabled={!answers.value.size}>Export {plural(answers.value.size, "answer")}</button>
        <label class="file">Import <input type="file" accept=".jsonl" onChange={open} /></label>
        {!draw && <button onClick={() => (reviewing.value = false)}>Leave the review</button>}
      </div>
      {draw && <Progress />}
      <p class="note" aria-live="polite">
        {unsaved.value > 0 ? `${plural(unsaved.value, "change")} since the last export; ${isKept.value ? "kept in this browser" : "this browser stores nothing, so export before you leave"}.` : "Everything is exported."} {told.value}
      </p>
    </div>
  );
}

// Of a draw: how much of it is answered, and where it is for a certificate what the answers prove so far.
function Progress() {
  const done = Array.from({ length: count() }, (_, row) => columnValue("id", row)).filter(isDecided).length;
  const found = progress.value;
  return (
    <div class="progress" aria-live="polite">
      <p><strong>{done.toLocaleString("en")} of {count().toLocaleString("en")}</strong> answered.{draw.by && ` Drawn in parts by ${draw.by}: only the labels of all of them certify.`}</p>
      {found && (
        <>
          <p>{found.good} good, {found.bad} bad{found.missing > 0 && `, ${found.missing} passed over, which count as bad`}: evidence {digits(found.evidence)} of {digits(found.needed)} that at most {digits(100 * draw.audit.risk)} % of the {draw.audit.size.toLocaleString("en")} {draw.named} are bad.</p>
          <div class="meter" aria-hidden="true"><span style={{ width: `${Math.min(100, (100 * Math.max(0, Math.log(found.evidence))) / Math.log(found.needed))}%` }} /></div>
          <p>{found.isReached ? <strong>Reached, with {digits(100 * draw.audit.confidence)} % confidence: you may stop here, and certify with --anytime. </strong> : found.more !== null && `${plural(found.more, "more good one")} without a bad one would do. `}
            Shown so far: at most {digits(100 * found.bound, 1)} % are bad.</p>
        </>
      )}
    </div>
  );
}

// What a reviewer is shown as a dialogue's name; in a draw its place.
export const titleOf = (row) => (draw ? `${(row + 1).toLocaleString("en")} of ${count().toLocaleString("en")}` : columnValue("id", row));

// The next dialogue of the list that has no decision.
export function nextOpen() {
  const { id } = place.value;
  const list = rows.value;
  const at = id === null ? -1 : list.indexOf(rowOf(id));
  const next = [...list.slice(at + 1), ...list.slice(0, at + 1)].find((row) => !isDecided(columnValue("id", row)));
  if (next !== undefined) go("dialogue", columnValue("id", next));
}

let choose = null;
// Answer about what is open by a key: the first choice, the second or the third.
export const decide = (number) => reviewing.value && choose?.(number);

function useKeys(act, ...changes) {
  // With the dialogue on the screen, not after it: a key may come at once.
  useLayoutEffect(() => {
    choose = act;
    return () => {
      if (choose === act) choose = null;
    };
  }, changes);
}

export function Decision({ dialogue, decided }) {
  const asked = QUESTIONS.filter((question) => !question.of_turns && question.name !== "better");
  const accepting = asked.find(({ name }) => name === "accept");
  const say = (value) => answer(dialogue, { dimension: "accept", value, old: decided });
  if (!draw?.of_pairs) useKeys((number) => accepting && number < 2 && say(accepting.choices[number]), dialogue, decided);
  if (!reviewing.value) return null;
  const said = answered(dialogue, "accept");
  const weakest = answered(dialogue, "weakest_turn");
  const numbers = dialogue.turns.map(([number]) => number).filter((number) => number > 0);
  const toggle = (value) => say(said === value ? null : value);
  return (
    <section class="decision" aria-label="your decision">
      <div class="choices">
        {accepting && <button class={said === "accept" ? "on good" : ""} aria-pressed={said === "accept"} onClick={() => toggle("accept")}>Accept <kbd>1</kbd></button>}
        {accepting && <button class={said === "reject" ? "on bad" : ""} aria-pressed={said === "reject"} onClick={() => toggle("reject")}>Reject <kbd>2</kbd></button>}
        {!draw && <label>Weakest turn <select value={weakest ?? ""} onChange={(event) => answer(dialogue, { dimension: "weakest_turn", value: event.target.value === "" ? null : Number(event.target.value), old: dialogue.judge?.weakest_turn ?? null })}>
          <option value="">not said</option>{numbers.map((number) => <option key={number} value={number}>{number}</option>)}
        </select></label>}
        {asked.filter(({ name }) => name !== "accept").map((question) => <Score key={question.name} dialogue={dialogue} question={question} old={dialogue.judge?.conversation_level?.[question.name]?.score ?? null} />)}
        <button onClick={nextOpen}>Next without a decision <kbd>Ctrl Enter</kbd></button>
      </div>
      <label class="note-field">Note <textarea rows="2" value={answered(dialogue, "note") ?? ""} onInput={(event) => answer(dialogue, { dimension: "note", value: event.target.value })} /></label>
    </section>
  );
}

// What a score should be; empty where the reviewer says nothing.
function Score({ dialogue, question, turn = null, old = null }) {
  const { name, choices } = question;
  const set = ({ target: { value } }) => answer(dialogue, { dimension: name, turn, old, value: value === "" ? null : /^\d$/.test(value) ? Number(value) : value });
  return (
    <label class="score-field">{spoken(name)} <select value={answered(dialogue, name, turn) ?? ""} onChange={set}>
      <option value="">–</option>{choices.map((one) => <option key={one} value={one}>{one}</option>)}
    </select></label>
  );
}

export function TurnReview({ dialogue, turn, scores }) {
  const asked = QUESTIONS.filter((question) => question.of_turns);
  if (!reviewing.value || turn < 1 || !asked.length) return null;
  return <div class="choices turn-review">Yours: {asked.map((question) => <Score key={question.name} dialogue={dialogue} question={question} turn={turn} old={scores?.[question.name] ?? null} />)}</div>;
}

// Which side comes first says nothing: it follows from the pair's id alone.
const isTurned = (id) => [...id].reduce((sum, sign) => (sum * 31 + sign.codePointAt(0)) >>> 0, 7) % 2 === 1;

export const isPairOpen = (pair) => pair.chosen && isPairHidden(pair.pair_id);

// Both sides without a word of which is which, until one is called better; in a draw for ever.
export function BlindPair({ dialogue, pair }) {
  const order = [...(pair.swapped ?? isTurned(pair.pair_id) ? ["rejected", "chosen"] : ["chosen", "rejected"]), "tie"];
  const turn = pair.turn ?? null;
  const said = answered(dialogue, "better", turn, pair.pair_id);
  const say = (value) => answer(dialogue, { dimension: "better", value: said === value ? null : value, turn, pair: pair.pair_id, old: draw ? null : pair.drop_reason ? "dropped" : "chosen" });
  if (draw) useKeys((number) => say(order[number]), dialogue, said);
  return (
    <section class="pair" id={`pair-${pair.pair_id}`} aria-label="pair, sides hidden">
      <h4>Which reply is better?</h4>
      <div class="sides">{order.slice(0, 2).map((name, at) => <div class="side" key={name}><h5>{"AB"[at]}</h5><div class="text" dir="auto"><Plain>{pair[name].content ?? ""}</Plain></div><Calls calls={pair[name].tool_calls} /></div>)}</div>
      <p class="choices">{["A is better", "B is better", "Neither"].map((title, at) => <button key={title} class={said === order[at] ? "on good" : ""} aria-pressed={said === order[at]} onClick={() => say(order[at])}>{title} {draw && <kbd>{at + 1}</kbd>}</button>)}</p>
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
