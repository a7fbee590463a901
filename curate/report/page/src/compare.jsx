// Two runs compared (`curate diff --html`): what changed as a whole, and a dialogue with both scorings.
import { Histogram } from "./charts.jsx";
import { columnNamed, count, figures, hasColumn, value } from "./data.js";
import { Columns, Origin, Role } from "./dialogue.jsx";
import { Message } from "./message.jsx";
import { Pair } from "./pair.jsx";
import { Adherence, Findings, Level, TurnScores, Verdict, byTurn, leastOf, untrue } from "./scores.jsx";
import { address, filters, go, place, searchFor, showOnly } from "./state.js";
import { Plain, digits, plural, spoken } from "./text.jsx";

const { diff } = figures;
const SECTIONS = [
  ["asked", "Recipe, judges and versions", Asked],
  ["verdicts", "Verdicts", Verdicts],
  ["shifts", "Scores", Shifts],
  ["sets", "Sets", Sets],
  ["pairs", "Pairs", PairCounts],
  ["trust", "What is known of the judge", Trust],
  ["apart", "Dialogues that are not in both", Apart],
];

export function Changes() {
  return (
    <div class="overview">
      <h1><Plain>{figures.run.name}</Plain></h1>
      <p><Plain>{diff.sentence}</Plain></p>
      <p class="note">First: <Plain>{diff.first}</Plain>; second: <Plain>{diff.second}</Plain>. {plural(diff.dialogues.both, "dialogue")} in both, of which {count().toLocaleString("en")} came out differently; these are in this page.</p>
      {figures.left_out > 0 && <p class="warning">The texts of {plural(figures.left_out, "dialogue")} are left out of this file to keep it under {figures.max_mb} MB; their figures are here.</p>}
      <ChangedKinds />
      {SECTIONS.map(([name, title, Section]) => <section key={name} id={name} aria-label={title}><h2>{title}</h2><Section /></section>)}
    </div>
  );
}

function ChangedKinds() {
  const counts = new Map();
  for (let row = 0; row < count(); row++) for (const kind of value("changed", row)) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return <p class="badges">{[...counts].map(([kind, number]) => <button class="badge" key={kind} onClick={() => showOnly("changed", kind)}>other {kind}: {number.toLocaleString("en")}</button>)}</p>;
}

const told = (held) => (held === null || held === undefined ? <span class="none">none</span> : typeof held === "number" ? digits(held, 4) : <Plain>{typeof held === "object" ? JSON.stringify(held) : String(held)}</Plain>);

function Differences({ title, changes }) {
  if (!changes.length) return null;
  return (
    <>
      <h3>{title}</h3>
      <div class="wide" tabindex="0" role="region" aria-label={title}>
        <table class="plain">
          <thead><tr><th scope="col">key</th><th scope="col">first</th><th scope="col">second</th></tr></thead>
          <tbody>{changes.map(({ key, before, after }) => <tr key={key}><th scope="row"><Plain>{key}</Plain></th><td>{told(before)}</td><td>{told(after)}</td></tr>)}</tbody>
        </table>
      </div>
    </>
  );
}

function Asked() {
  const judges = Object.entries(diff.judges).filter(([, changes]) => changes.length);
  const isSame = !diff.recipe.length && !judges.length && !diff.versions.length && !diff.figures.length;
  if (isSame) return <p>Recipe, judges and versions are the same.</p>;
  return (
    <>
      <Differences title="Recipe" changes={diff.recipe} />
      {judges.map(([stage, changes]) => <Differences key={stage} title={`Who scored, and how: ${stage}`} changes={changes} />)}
      <Differences title="Versions" changes={diff.versions} />
      <Differences title="Figures" changes={diff.figures} />
    </>
  );
}

const UNSCORED = "unscored";
const verdictFilter = (column, verdict) => ({ column, values: [verdict === UNSCORED ? null : verdict] });

function Verdicts() {
  const { verdicts, same_verdict: same, same_verdict_interval: ends, better, worse } = diff.dialogues;
  const rows = Object.keys(verdicts);
  if (!rows.length) return <p>No rubric judge scored any of them.</p>;
  const columns = [...new Set(rows.flatMap((row) => Object.keys(verdicts[row])))];
  const open = (before, after) => {
    filters.value = [verdictFilter("verdict_before", before), verdictFilter("verdict", after)];
    searchFor("");
    go("dialogues");
  };
  return (
    <>
      <p>{same.count.toLocaleString("en")} of {same.of.toLocaleString("en")} have the same verdict{ends && ` (95 % ${(100 * ends[0]).toFixed(0)} to ${(100 * ends[1]).toFixed(0)} %)`}; {better.toLocaleString("en")} a better one, {worse.toLocaleString("en")} a worse one.</p>
      <div class="wide" tabindex="0" role="region" aria-label="verdicts">
        <table class="counts">
          <thead><tr><th scope="col">first run down, second across</th>{columns.map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row}>
                <th scope="row">{row}</th>
                {columns.map((name) => {
                  const number = verdicts[row][name];
                  return <td key={name}>{number && name !== row ? <button onClick={() => open(row, name)} aria-label={`${row} to ${name}: ${plural(number, "dialogue")}`}>{number.toLocaleString("en")}</button> : number?.toLocaleString("en")}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const signed = (number) => (number >= 0 ? "+" : "") + number.toFixed(2);

// The interval of a shift around 0, on a scale of its own.
function Around({ shift, interval }) {
  const most = Math.max(...interval.map(Math.abs), 1e-9);
  const x = (one) => 60 + (52 * one) / most;
  return (
    <svg class="around" viewBox="0 0 120 16" width="120" height="16" aria-hidden="true">
      <line class="zero" x1="60" x2="60" y1="1" y2="15" />
      <line class={interval[0] > 0 || interval[1] < 0 ? "ends far" : "ends"} x1={x(interval[0])} x2={x(interval[1])} y1="8" y2="8" />
      <circle cx={x(shift)} cy="8" r="3.5" />
    </svg>
  );
}

function Shifts() {
  const { shifts } = diff.dialogues;
  if (!shifts.length) return <p>The runs have no score in common.</p>;
  const moved = shifts.map(({ column }) => `shift_${column}`).filter((name) => hasColumn(name) && columnNamed(name));
  return (
    <>
      <div class="wide" tabindex="0" role="region" aria-label="shifts of scores">
        <table class="plain figures">
          <thead><tr>{["score", "dialogues", "first", "second", "shift", "95 %", "around 0", "scored since", "no longer"].map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
          <tbody>
            {shifts.map((one) => (
              <tr key={one.column}>
                <th scope="row">{spoken(one.column)}</th><td>{one.n.toLocaleString("en")}</td><td>{one.before.toFixed(2)}</td><td>{one.after.toFixed(2)}</td><td>{signed(one.shift)}</td>
                <td>{one.interval ? `${signed(one.interval[0])} to ${signed(one.interval[1])}` : ""}</td><td>{one.interval && <Around shift={one.shift} interval={one.interval} />}</td>
                <td>{one.gained.toLocaleString("en")}</td><td>{one.lost.toLocaleString("en")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">Mean of second minus first, dialogue by dialogue; equal dialogues count once. Each line has a scale of its own; it is strong where its interval leaves 0 out.</p>
      <div class="grid">{moved.slice(0, 8).map((name) => <Histogram key={name} column={name} about={columnNamed(name).about} />)}</div>
    </>
  );
}

function Gains({ rows, columns, label }) {
  return (
    <table class="plain figures">
      <thead><tr>{[label, "first", "second", "gained", "lost"].map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
      <tbody>{rows.map(([name, one]) => (
        <tr key={name}><th scope="row">{spoken(name)}</th><td>{one.before.toLocaleString("en")}</td><td>{one.after.toLocaleString("en")}</td>
          {["gained", "lost"].map((way) => <td key={way}>{one[way] && columns ? <button onClick={() => columns(name, way)} aria-label={`${spoken(name)} ${way}: ${one[way]}`}>{one[way].toLocaleString("en")}</button> : one[way].toLocaleString("en")}</td>)}
        </tr>
      ))}</tbody>
    </table>
  );
}

function Sets() {
  const rows = Object.entries(diff.dialogues.sets);
  if (!rows.length) return <p>Neither run selected.</p>;
  return <><Gains label="set" rows={rows} columns={(name, way) => showOnly(`sets_${way}`, name)} /><p class="note">Sizes are of the whole runs, gained and lost of the dialogues in both.</p></>;
}

function PairCounts() {
  const rows = Object.entries(diff.pairs);
  return (
    <>
      {rows.length ? <Gains label="pairs" rows={rows} /> : <p>Neither run has pairs.</p>}
      {["gained", "lost"].filter((way) => hasColumn(`pairs_${way}`)).map((way) => <button key={way} onClick={() => { filters.value = [{ column: `pairs_${way}`, low: 1, high: null, missing: false }]; searchFor(""); go("dialogues"); }}>Dialogues with pairs {way}</button>)}
      <Differences title="Dropped pairs by reason" changes={diff.drop_reasons} />
    </>
  );
}

function Trust() {
  return diff.trust.length ? <Differences title="Sentences of the reports" changes={diff.trust} /> : <p>The same is known of both judges.</p>;
}

function Apart() {
  const { only_first: first, only_second: second, other_content: other } = diff.dialogues;
  const named = ({ count: number, ids }) => <details><summary>{plural(number, "dialogue")}</summary><p><Plain>{ids.join(", ")}</Plain>{ids.length < number && `, and ${(number - ids.length).toLocaleString("en")} more`}</p></details>;
  if (!first.count && !second.count && !other.count) return <p>Both runs have the same dialogues.</p>;
  return (
    <dl class="trust">
      {first.count > 0 && <div><dt>Only in the first</dt><dd>{named(first)}</dd></div>}
      {second.count > 0 && <div><dt>Only in the second</dt><dd>{named(second)}</dd></div>}
      {other.count > 0 && <div><dt>Compared although content, role or scenario differ</dt><dd>{named(other)}</dd></div>}
    </dl>
  );
}

const Change = ({ row }) => {
  const [before, after] = [value("verdict_before", row), value("verdict", row)];
  const badge = (verdict) => (verdict ? <Verdict verdict={verdict} /> : <span class="badge">{UNSCORED}</span>);
  if (before === after) return before && badge(before);
  return <span class="change">{badge(before)}<span>→</span>{badge(after)}</span>;
};

// A dialogue in the list.
export function RowChange({ row }) {
  const shift = value("shift_mean_score", row) ?? value("shift_adherence", row) ?? value("shift_overall_score", row);
  const sets = ["gained", "lost"].flatMap((way) => (value(`sets_${way}`, row) ?? []).map((set) => `${way === "gained" ? "into" : "out of"} ${set}`));
  return (
    <>
      <span class="row-top"><strong><Plain>{value("id", row)}</Plain></strong><Change row={row} /></span>
      <span class="row-text"><Plain>{value("first_words", row)}</Plain></span>
      <span class="row-end"><small>{sets.join(", ") || `other ${value("changed", row).join(", ")}`}</small><small>{shift !== null && signed(shift)}</small></span>
    </>
  );
}

export function Compared({ row, id, dialogue }) {
  const header = <h2><a href={address("dialogue", id)}><Plain>{id}</Plain></a></h2>;
  if (!dialogue) return <article class="dialogue"><header>{header}<p><Change row={row} /></p></header><p class="pane-note">The text of this dialogue is left out of this file, to keep it under {figures.max_mb} MB.</p><Columns row={row} /></article>;
  const { before } = dialogue;
  const firstTurn = dialogue.turns[0]?.[1] ?? dialogue.messages.length;
  const system = dialogue.messages.slice(0, firstTurn).filter((message) => (message.content ?? "") !== (dialogue.role_definition ?? ""));
  const pairs = dialogue.pairs ?? [];
  const isIn = (pair) => dialogue.turns.some(([number]) => number === pair.turn);
  return (
    <article class="dialogue">
      <header>{header}<p class="badges"><Change row={row} /></p></header>
      <Both before={before} after={dialogue} />
      {before.messages && <details><summary>Text, role or scenario differ in the first run: show them</summary><Role dialogue={{ ...before, adherence: undefined }} />{before.messages.map((message, at) => <Message key={at} message={message} />)}</details>}
      <Role dialogue={{ ...dialogue, adherence: undefined }} />
      {system.map((message, at) => <Message key={at} message={message} />)}
      {dialogue.turns.map(([number, start, stop]) => (
        <ComparedTurn key={number} id={id} number={number} messages={dialogue.messages.slice(start, stop)} before={turnOf(before, number)} after={turnOf(dialogue, number)}
          pairs={pairs.filter((pair) => pair.turn === number)} changes={dialogue.pair_changes} />
      ))}
      {pairs.filter((pair) => !isIn(pair)).map((pair) => <ChangedPair key={pair.pair_id} pair={pair} change={dialogue.pair_changes[pair.pair_id]} />)}
      <Columns row={row} />
      <Origin dialogue={dialogue} />
    </article>
  );
}

// What both runs say of a dialogue as a whole, row by row.
function Both({ before, after }) {
  const row = (name, show) => [name, show(before), show(after)];
  const unscored = (record) => record?.reason && <small>unscored: {spoken(record.reason)}</small>;
  const level = (name) => ({ judge }) => {
    const held = judge?.conversation_level?.[name];
    return held && <><Level score={held.score} reading={held.reading} /> {held.note && <Plain>{held.note}</Plain>}</>;
  };
  const metrics = [...new Set([before, after].flatMap(({ metrics: held }) => (held?.metrics ?? []).map((one) => one.name)))];
  const metric = (name) => ({ metrics: held }) => {
    const one = held?.metrics?.find((other) => other.name === name);
    return one && <>{one.score ?? `n/a (${spoken(one.na)})`}{one.failure_code && <small> {spoken(one.failure_code)}</small>}</>;
  };
  const rows = [
    row("verdict", ({ judge }) => (judge?.verdict ? <Verdict verdict={judge.verdict} /> : unscored(judge))),
    row("in the sets", ({ sets }) => sets?.join(", ")),
    row("not in sft, for", ({ reasons }) => reasons?.length > 0 && reasons.map((reason) => <span class="badge bad" key={reason} title={figures.meanings[reason]}>{reason}</span>)),
    ...["coherence", "task_completion", "repair_handling"].map((name) => row(spoken(name), level(name))),
    row("decided by", ({ judge }) => judge?.decision_basis && <Plain>{judge.decision_basis}</Plain>),
    row("role", ({ adherence }) => (adherence?.session_score !== undefined ? <Adherence record={adherence} /> : unscored(adherence))),
    row("metrics", ({ metrics: held }) => (held?.metrics ? `${digits(held.overall_score, 1)} of 100, ${held.passed ? "pass" : "fail"}` : unscored(held))),
    ...metrics.map((name) => row(spoken(name), metric(name))),
    row("facts", ({ factuality }) => (factuality?.precision !== undefined && factuality?.precision !== null ? `precision ${digits(factuality.precision)}` : unscored(factuality))),
  ].filter(([, one, other]) => one || other);
  return (
    <div class="wide" tabindex="0" role="region" aria-label="what both runs say">
      <table class="plain both">
        <thead><tr><th scope="col" /><th scope="col">first</th><th scope="col">second</th></tr></thead>
        <tbody>{rows.map(([name, one, other]) => <tr key={name}><th scope="row">{name}</th><td>{one || <span class="none">none</span>}</td><td>{other || <span class="none">none</span>}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

// All that a run says of a turn.
function turnOf({ judge, adherence, metrics, factuality }, number) {
  return {
    scores: byTurn(judge).get(number),
    role: byTurn(adherence).get(number),
    facts: byTurn(factuality).get(number),
    faults: (metrics?.metrics ?? []).filter((metric) => metric.failure_code && metric.turns?.includes(number)),
    isWeakest: judge?.weakest_turn === number,
  };
}

const SIDES = ["first", "second"];

function ComparedTurn({ id, number, messages, before, after, pairs, changes }) {
  const least = leastOf(after.scores);
  const isSame = JSON.stringify(before) === JSON.stringify(after);
  const sides = isSame ? [["both", after]] : [before, after].map((side, at) => [SIDES[at], side]);
  const isSaid = ({ scores, role, isWeakest }) => scores || role || isWeakest;
  const isFaulty = ({ scores, role, faults, facts }) => scores?.issues?.length || role?.reason || faults.length || facts?.claims?.length;
  return (
    <section class={`turn ${least ? `edge-${least}` : ""} ${place.value.turn === String(number) ? "current" : ""}`} id={`turn-${number}`} aria-label={`turn ${number}`}>
      <h3><a href={address("dialogue", id, number)}>Turn {number}</a></h3>
      {sides.map(([name, side]) => isSaid(side) && <p key={name} class="side-scores"><b>{name}</b> <TurnScores {...side} /></p>)}
      <div class="turn-body">
        <div class="said">{messages.map((message, at) => <Message key={at} message={message} marks={message.role === "assistant" ? untrue(after.facts) : []} />)}</div>
        <div class="found">{sides.map(([name, side]) => isFaulty(side) && <div key={name}><b class="note">{name}</b><Findings {...side} /></div>)}</div>
      </div>
      {pairs.map((pair) => <ChangedPair key={pair.pair_id} pair={pair} change={changes[pair.pair_id]} />)}
    </section>
  );
}

const ChangedPair = ({ pair, change }) => <>{change && <p class="badges"><span class={`badge ${change === "gained" ? "good" : "bad"}`}>pair {change}</span></p>}<Pair pair={pair} /></>;
