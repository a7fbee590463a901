// The dialogues of the run: searched, filtered and sorted on the left, one of them on the right.
import { useEffect, useRef, useState } from "preact/hooks";
import { choices, columnNamed, count, draw, figures, pairCount, pairValue, rowOf, value } from "./data.js";
import { Strip } from "./charts.jsx";
import { RowChange } from "./compare.jsx";
import { Dialogue } from "./dialogue.jsx";
import { List } from "./list.jsx";
import { isDecided, isHidden, isPairHidden, reviewing } from "./review.js";
import { ReviewBar, titleOf } from "./review.jsx";
import { Verdict } from "./scores.jsx";
import { filters, go, hits, place, replacePlace, rows, searchFor, searched, sorting, words } from "./state.js";
import { Plain, digits, plural, spoken } from "./text.jsx";

export function Browser() {
  const { id, turn } = place.value;
  const current = id === null ? undefined : rowOf(id);
  return (
    <div class={`browser ${id === null ? "" : "has-open"}`}>
      <div class="side-pane">
        {!figures.diff && <ReviewBar />}
        <Search />
        {!draw && <Filters />}
        <p class="status" aria-live="polite">
          {plural(rows.value.length, draw?.of_pairs ? "pair" : "dialogue")} of {count().toLocaleString("en")}
          {searched.value < 1 && `, ${Math.floor(100 * searched.value)} % searched`}
        </p>
        <List rows={rows.value} current={current} height={74} label="dialogues" draw={(row) => <Row row={row} />} pick={(row) => go("dialogue", value("id", row))} />
      </div>
      <div class="main-pane" tabindex="-1" id="main-pane">
        {id === null ? <p class="pane-note">Choose a dialogue; <kbd>j</kbd> and <kbd>k</kbd> go through them, <kbd>?</kbd> shows all keys.</p> : (
          <>
            <p class="back"><button onClick={() => go("dialogues")}>Back to the list</button></p>
            <Dialogue id={id} target={turn} key={id} />
          </>
        )}
      </div>
    </div>
  );
}

function Row({ row }) {
  if (figures.diff) return <RowChange row={row} />;
  const score = ["mean_score", "adherence", "overall_score"].map((name) => [name, value(name, row)]).filter(([, held]) => held !== null);
  const verdict = value("verdict", row);
  const unscored = value("judge_unscored", row);
  if (isHidden(value("id", row))) return <><span class="row-top"><strong><Plain>{titleOf(row)}</Plain></strong></span><span class="row-text"><Plain>{value("first_words", row)}</Plain></span><span class="row-end"><small>{isDecided(value("id", row)) ? "answered" : "not decided"}</small></span></>;
  return (
    <>
      <span class="row-top"><strong><Plain>{value("id", row)}</Plain></strong>{verdict ? <Verdict verdict={verdict} /> : unscored && <span class="badge">unscored</span>}</span>
      <span class="row-text"><Plain>{value("first_words", row)}</Plain></span>
      <span class="row-end"><Strip row={row} /><small>{reviewing.value && isDecided(value("id", row)) && "decided · "}{score.map(([name, held]) => `${spoken(name)} ${digits(held)}`).join(" · ")}</small></span>
    </>
  );
}

function Search() {
  return (
    <div class="search">
      <label for="search">Search in all texts</label>
      <input id="search" type="search" value={words.value} onInput={(event) => searchFor(event.target.value)} placeholder="words, an id, an issue" />
    </div>
  );
}

function Filters() {
  const box = useRef(null);
  const add = (event) => {
    const column = columnNamed(event.target.value);
    event.target.value = "";
    if (column) filters.value = [...filters.value, column.kind === "number" ? { column: column.name, low: null, high: null, missing: false } : { column: column.name, values: choices(column).slice(0, 1).map(([one]) => one) }];
    setTimeout(() => box.current.querySelector("fieldset:last-of-type :is(input, select)")?.focus());
  };
  const change = (at, filter) => (filters.value = filters.value.flatMap((held, place) => (place === at ? (filter ? [filter] : []) : [held])));
  const sorts = figures.columns.filter((column) => column.kind !== "list");
  return (
    <div class="filters" ref={box}>
      {filters.value.map((filter, at) => <Filter key={`${at} ${filter.column}`} filter={filter} change={(filter) => change(at, filter)} />)}
      <div class="choices">
        <label>Filter by <select onChange={add}><option value="">choose a column</option>{figures.columns.filter((column) => column.name !== "id").map((column) => <option key={column.name} value={column.name} title={column.about}>{column.name}</option>)}</select></label>
        <label>Sort by <select value={sorting.value.column} onChange={(event) => (sorting.value = { ...sorting.value, column: event.target.value })}>
          <option value="">order of the run</option>{sorts.map((column) => <option key={column.name} value={column.name}>{column.name}</option>)}
        </select></label>
        <label><input type="checkbox" checked={sorting.value.down} onChange={(event) => (sorting.value = { ...sorting.value, down: event.target.checked })} /> highest first</label>
        {(filters.value.length > 0 || hits.value) && <button onClick={() => { filters.value = []; searchFor(""); }}>Show all</button>}
      </div>
    </div>
  );
}

const OPTIONS = 200;

function Filter({ filter, change }) {
  const column = columnNamed(filter.column);
  const bound = (name) => (event) => change({ ...filter, [name]: event.target.value === "" ? null : Number(event.target.value) });
  const toggle = (one, isOn) => change({ ...filter, values: isOn ? [...filter.values, one] : filter.values.filter((held) => held !== one) });
  const [all] = useState(() => (column.kind === "number" ? [] : choices(column)));
  return (
    <fieldset class="filter">
      <legend title={column.about}>{column.name}</legend>
      {filter.values ? (
        <div class="options">
          {all.slice(0, OPTIONS).map(([one, number]) => (
            <label key={String(one)} title={figures.meanings[one]}><input type="checkbox" checked={filter.values.includes(one)} onChange={(event) => toggle(one, event.target.checked)} /> <Plain>{String(one)}</Plain> <small>{number.toLocaleString("en")}</small></label>
          ))}
          <label><input type="checkbox" checked={filter.values.includes(null)} onChange={(event) => toggle(null, event.target.checked)} /> none</label>
          {all.length > OPTIONS && <small>and {plural(all.length - OPTIONS, "more value")}: search for them</small>}
        </div>
      ) : (
        <div class="options">
          <label>from <input type="number" step="any" value={filter.low ?? ""} onInput={bound("low")} /></label>
          <label>to <input type="number" step="any" value={filter.high ?? ""} onInput={bound("high")} /></label>
          <label><input type="checkbox" checked={filter.missing} onChange={(event) => change({ ...filter, missing: event.target.checked })} /> also those without a value</label>
        </div>
      )}
      <button class="remove" onClick={() => change(null)} aria-label={`remove the filter ${column.name}`}>×</button>
    </fieldset>
  );
}

export function Pairs() {
  const [reason, setReason] = useState("");
  const { id, turn } = place.value;
  const all = Array.from({ length: pairCount() }, (_, at) => at);
  const counts = new Map();
  all.forEach((at) => counts.set(pairValue("dropped", at) ?? "passed", (counts.get(pairValue("dropped", at) ?? "passed") ?? 0) + 1));
  const shown = all.filter((at) => !reason || (pairValue("dropped", at) ?? "passed") === reason);
  const current = all.find((at) => pairValue("id", at) === turn);
  if (!all.length) return <p class="pane-note">The run made no pairs, and its data has none.</p>;
  const open = (at) => go("pairs", pairValue("dialogue", at), pairValue("id", at));
  return (
    <div class={`browser ${id === null ? "" : "has-open"}`}>
      <div class="side-pane">
        <ReviewBar />
        <div class="choices"><label>Show <select value={reason} onChange={(event) => setReason(event.target.value)}>
          <option value="">all pairs ({all.length.toLocaleString("en")})</option>
          {[...counts].sort((a, b) => b[1] - a[1]).map(([name, number]) => <option key={name} value={name}>{name === "passed" ? "passed" : `dropped: ${name}`} ({number.toLocaleString("en")})</option>)}
        </select></label></div>
        <List rows={shown} current={current} height={60} label="pairs" draw={(at) => <PairRow at={at} />} pick={open} />
      </div>
      <div class="main-pane" tabindex="-1" id="main-pane">
        {id === null ? <p class="pane-note">Choose a pair.</p> : <><p class="back"><button onClick={() => go("pairs")}>Back to the list</button></p><Dialogue id={id} target={turn} key={id} /></>}
      </div>
    </div>
  );
}

function PairRow({ at }) {
  const dropped = pairValue("dropped", at);
  const probability = pairValue("probability", at);
  if (isPairHidden(pairValue("id", at))) return <><span class="row-top"><strong><Plain>{pairValue("dialogue", at)}</Plain></strong></span><span class="row-end"><small>not compared</small></span></>;
  return (
    <>
      <span class="row-top"><strong><Plain>{pairValue("dialogue", at)}</Plain></strong>{dropped ? <span class="badge bad">{spoken(dropped)}</span> : <span class="badge good">passed</span>}</span>
      <span class="row-end"><small>{pairValue("source", at) === "none" ? "no other reply" : `${pairValue("kind", at)}, ${pairValue("source", at)}`}{pairValue("turn", at) !== null && `, turn ${pairValue("turn", at)}`}</small><small>{probability !== null ? `p ${digits(probability)}` : pairValue("preference", at) !== null ? `log-odds ${digits(pairValue("preference", at))}` : ""}</small></span>
    </>
  );
}

// The next dialogue of the list, or the one before.
export function step(by) {
  const list = rows.value;
  if (!list.length) return;
  const { id } = place.value;
  const at = id === null ? -1 : list.indexOf(rowOf(id));
  const next = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (id === null) go("dialogue", value("id", next));
  else replacePlace("dialogue", value("id", next));
}

// The next turn of the dialogue that is open, the one before, or the weakest.
export function stepTurn(by) {
  const { id, turn } = place.value;
  if (id === null) return;
  if (by === "weakest") {
    const weakest = value("weakest_turn", rowOf(id));
    if (weakest !== null) go("dialogue", id, weakest);
    return;
  }
  const numbers = [...document.querySelectorAll(".turn")].map((section) => Number(section.id.slice(5)));
  const at = numbers.indexOf(Number(turn));
  const next = turn === null ? numbers[0] : numbers[Math.max(0, Math.min(numbers.length - 1, at + by))];
  if (next !== undefined) go("dialogue", id, next);
}
