// The run as a whole: where everything went, how it was scored, what is known of the judge, and what it cost.
import { useState } from "preact/hooks";
import { Bars, CountTable, Histogram, Line, Relation, TurnMap, columnValues, meansByTurn } from "./charts.jsx";
import { choices, columnNamed, count, figures, hasColumn, numberColumns } from "./data.js";
import { address, showOnly } from "./state.js";
import { correlation } from "./statistics.js";
import { Plain, digits, plural, share, spoken } from "./text.jsx";

const SECTIONS = [
  ["funnel", "Rows in, pairs out", Funnel],
  ["trust", "What is known of the judge", Trust],
  ["scores", "Scores", Scores],
  ["turns", "Turn by turn", Turns],
  ["relations", "How scores relate", Relations],
  ["metrics", "Weighted metrics", Metrics],
  ["facts", "Facts", Facts],
  ["failures", "Known ways of judges to fail", Failures],
  ["pair-checks", "Checks of the pairs", PairChecks],
  ["cost", "Cost and time", Cost],
  ["recipe", "Judges and recipe", Recipe],
];

export function Overview() {
  const { run } = figures;
  const jump = (event, name) => {
    event.preventDefault();
    const section = document.getElementById(name);
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  };
  return (
    <div class="overview">
      <h1><Plain>{run.name}</Plain></h1>
      <p>
        {plural(count(), "dialogue")}{figures.parts.length > 0 && ` in part ${figures.part + 1} of ${figures.parts.length}`}; status {run.status}; started {run.started.slice(0, 16).replace("T", " ")},
        took {duration(run.seconds)}{run.curate && `; curate ${run.curate}`}.
      </p>
      {figures.left_out > 0 && <p class="warning">The texts of {plural(figures.left_out, "dialogue")}, the last of the run, are left out of this file to keep it under {figures.max_mb} MB. Their scores are here; <code>curate report --split</code> writes all of it into several files.</p>}
      {figures.parts.length > 0 && <p>The sections Scores, Turn by turn and How scores relate show this part, the others the whole run. Parts: {figures.parts.map((name, at) => <>{at ? ", " : ""}{at === figures.part ? <b>{name}</b> : <a href={encodeURIComponent(name)}>{name}</a>}</>)}.</p>}
      {run.warnings.map((warning) => <p class="warning" key={warning}><Plain>{warning}</Plain></p>)}
      <nav aria-label="sections" class="sections">{SECTIONS.map(([name, title]) => <a key={name} href={`#${name}`} onClick={(event) => jump(event, name)}>{title}</a>)}</nav>
      {SECTIONS.map(([name, title, Section]) => <section key={name} id={name} tabindex="-1" aria-label={title}><h2>{title}</h2><Section /></section>)}
    </div>
  );
}

const duration = (seconds) => (seconds < 90 ? `${digits(seconds, 1)} s` : seconds < 5400 ? `${digits(seconds / 60, 1)} minutes` : `${digits(seconds / 3600, 1)} hours`);

function Funnel() {
  return (
    <div class="funnel">
      {figures.funnel.map((step) => {
        const reasons = Object.entries(step.reasons);
        return (
          <div class="step" key={step.name}>
            <p><strong>{step.name}</strong>: {step.passed.toLocaleString("en")} of {plural(step.whole, step.unit.replace(/s$/, ""))} <small>{share(step.passed, step.whole)}</small></p>
            <div class="meter" aria-hidden="true"><span style={{ width: `${step.whole ? (100 * step.passed) / step.whole : 0}%` }} /></div>
            {reasons.length > 0 && <Bars of={step.whole} rows={reasons.map(([reason, number]) => ({ label: reason, count: number, kind: "lost", title: figures.meanings[reason], pick: step.column && figures.parts.length === 0 ? () => showOnly(step.column, reason) : undefined }))} />}
          </div>
        );
      })}
      <Exports />
    </div>
  );
}

function Exports() {
  const rows = Object.entries(figures.exports);
  if (!rows.length) return <p>Nothing was exported.</p>;
  const names = [...new Set(rows.flatMap(([, counts]) => Object.keys(counts).filter((name) => counts[name] > 0)))];
  return (
    <details>
      <summary>Rows out: what was exported, and what a trainer's format cannot carry</summary>
      <div class="wide" tabindex="0" role="region" aria-label="exports">
        <table class="plain">
          <thead><tr><th scope="col">export</th>{names.map((name) => <th scope="col" key={name}>{spoken(name)}</th>)}</tr></thead>
          <tbody>{rows.map(([trainer, counts]) => <tr key={trainer}><th scope="row">{trainer}</th>{names.map((name) => <td key={name}>{counts[name]?.toLocaleString("en") ?? ""}</td>)}</tr>)}</tbody>
        </table>
      </div>
    </details>
  );
}

function Trust() {
  return (
    <dl class="trust">
      {figures.trust.map(({ kind, sentence, figures: held }) => (
        <div key={kind}>
          <dt>{kind}</dt>
          <dd><Plain>{sentence}</Plain>{held && <details><summary>All its figures</summary><Tree value={held} /></details>}</dd>
        </div>
      ))}
    </dl>
  );
}

const ROWS = 200;

// Any JSON as nested tables: lists of records side by side, the rest name by name.
function Tree({ value }) {
  if (value === null || value === undefined) return <span class="none">none</span>;
  if (typeof value === "number") return digits(value, 4);
  if (typeof value !== "object") return <Plain>{String(value)}</Plain>;
  if (Array.isArray(value)) {
    if (!value.length) return <span class="none">none</span>;
    const isTable = value.every((one) => one && typeof one === "object" && !Array.isArray(one));
    const more = value.length > ROWS && <p class="note">and {(value.length - ROWS).toLocaleString("en")} more in the run's file</p>;
    if (!isTable) return value.some((one) => one && typeof one === "object") ? <>{value.slice(0, ROWS).map((one, at) => <div key={at}><Tree value={one} /></div>)}{more}</> : <><Plain>{value.slice(0, ROWS).map((one) => (typeof one === "number" ? digits(one, 4) : String(one))).join(", ")}</Plain>{more}</>;
    const names = [...new Set(value.flatMap((one) => Object.keys(one)))];
    return (
      <div class="wide" tabindex="0" role="region" aria-label="figures">
        <table class="plain">
          <thead><tr>{names.map((name) => <th scope="col" key={name}>{spoken(name)}</th>)}</tr></thead>
          <tbody>{value.slice(0, ROWS).map((one, at) => <tr key={at}>{names.map((name) => <td key={name}><Tree value={one[name]} /></td>)}</tr>)}</tbody>
        </table>
        {more}
      </div>
    );
  }
  return <table class="plain"><tbody>{Object.entries(value).map(([name, held]) => <tr key={name}><th scope="row">{spoken(name)}</th><td><Tree value={held} /></td></tr>)}</tbody></table>;
}

const MAIN = ["coherence", "task_completion", "repair_handling", "mean_helpfulness", "mean_context_use", "mean_safety", "mean_score", "adherence", "overall_score", "factual_precision", "p_good", "uncertainty", "n_turns", "characters"];

function Scores() {
  const [more, setMore] = useState("");
  const shown = MAIN.filter(hasColumn);
  const others = numberColumns().filter((column) => !shown.includes(column.name));
  const verdict = columnNamed("verdict");
  return (
    <>
      {verdict && <><h3>Verdicts</h3><Bars of={count()} rows={choices(verdict).map(([name, number]) => ({ label: name, count: number, kind: `verdict-${name}`, pick: () => showOnly("verdict", name) }))} /></>}
      <div class="grid">{shown.map((name) => <Histogram key={name} column={name} about={columnNamed(name).about} />)}</div>
      {others.length > 0 && <label>Another column <select value={more} onChange={(event) => setMore(event.target.value)}><option value="">choose</option>{others.map((column) => <option key={column.name} value={column.name}>{column.name}</option>)}</select></label>}
      {more && <><Histogram column={more} about={columnNamed(more).about} /><p class="note">{columnNamed(more).about}</p></>}
    </>
  );
}

function Turns() {
  const decay = figures.adherence;
  const [strip, setStrip] = useState("turn_scores");
  const means = meansByTurn("turn_scores");
  const hasRoles = meansByTurn("turn_roles").length > 0;
  if (!means.length && !hasRoles) return <p>No turns are scored in this run.</p>;
  const shown = means.length ? strip : "turn_roles";
  return (
    <>
      {means.length > 0 && hasRoles && <p><label>Colour by <select value={strip} onChange={(event) => setStrip(event.target.value)}><option value="turn_scores">lowest score of the turn, 1-5</option><option value="turn_roles">role adherence, 0-1</option></select></label></p>}
      <TurnMap strip={shown} />
      <div class="grid two">
        {means.length > 1 && <Line label="Lowest score of a turn, mean by turn" below="turn" bottom={1} top={5} points={means.map(({ turn, mean, dialogues }) => ({ x: turn, y: mean, title: `turn ${turn}: ${digits(mean)} over ${plural(dialogues, "dialogue")}` }))} />}
        {decay?.positions.filter((one) => one.mean !== null).length > 1 && (
          <Line label="Role adherence by reply, mean and 95 %" below="n-th reply" bottom={0} top={1}
            points={decay.positions.filter((one) => one.mean !== null).map((one) => ({ x: one.position, y: one.mean, low: one.interval?.[0], high: one.interval?.[1], title: `reply ${one.position}: ${digits(one.mean)} over ${plural(one.scored, "dialogue")}` }))} />
        )}
        {decay?.positions.length > 1 && (
          <Line label="Still in role after the n-th reply, share and 95 %" below="n-th reply" bottom={0} top={1}
            points={decay.positions.map((one) => ({ x: one.position, y: one.survival, low: one.survival_interval[0], high: one.survival_interval[1], title: `reply ${one.position}: ${digits(one.survival)}` }))} />
        )}
      </div>
      {decay?.slope !== null && decay?.slope !== undefined && <p>Role adherence changes by {digits(decay.slope, 3)} from one turn to the next within dialogues{decay.slope_interval && ` (95 % ${digits(decay.slope_interval[0], 3)} to ${digits(decay.slope_interval[1], 3)})`}.</p>}
      {means.length > 0 && (
        <details><summary>Means by turn as a table</summary>
          <table class="plain"><thead><tr><th scope="col">turn</th><th scope="col">dialogues</th><th scope="col">mean of the lowest score</th></tr></thead>
            <tbody>{means.map(({ turn, mean, dialogues }) => <tr key={turn}><th scope="row">{turn}</th><td>{dialogues.toLocaleString("en")}</td><td>{digits(mean)}</td></tr>)}</tbody></table>
        </details>
      )}
    </>
  );
}

function Relations() {
  const columns = numberColumns().map((column) => column.name);
  const first = (...names) => names.find(hasColumn) ?? columns[0];
  const [x, setX] = useState(first("characters", "n_turns"));
  const [y, setY] = useState(first("mean_helpfulness", "overall_score", "adherence"));
  const pick = (value, set, label) => <label>{label} <select value={value} onChange={(event) => set(event.target.value)}>{columns.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>;
  const { lengths } = figures;
  const longest = lengths ? lengths.counts.findLastIndex((row) => row.some(Boolean)) + 1 : 0;
  return (
    <>
      {columns.length > 0 && <><p class="choices">{pick(y, setY, "Show")} {pick(x, setX, "by")}</p><Relation x={x} y={y} /></>}
      {lengths && (
        <>
          <h3>Length of a reply against helpfulness</h3>
          <CountTable corner="characters" columns={["1", "2", "3", "4", "5"]} counts={lengths.counts.slice(0, longest)}
            rows={lengths.lengths.map((low, at) => (at + 1 < lengths.lengths.length ? `${low} to ${lengths.lengths[at + 1] - 1}` : `${low} and more`)).slice(0, longest)} />
          <p class="note">{plural(lengths.turns, "turn")}{lengths.correlation !== null && `; rank correlation ${lengths.correlation.toFixed(2)} (Spearman)`}. One column for each score of helpfulness; the darker a cell, the larger its share of the row.</p>
        </>
      )}
    </>
  );
}

function Metrics() {
  const { metrics: report } = figures;
  if (!report?.dialogues) return <p>The run has no weighted metrics.</p>;
  const names = Object.keys(report.metrics);
  const columns = names.map((name) => `metric_${name}`);
  const held = columns.filter(hasColumn);
  const values = new Map(held.map((column) => [column, columnValues(column)]));
  return (
    <>
      <p>Overall {digits(report.overall_mean, 1)} of 100 on average; {report.passed.toLocaleString("en")} of {plural(report.dialogues, "dialogue")} pass; weights changed by up to 20 % would flip {report.flippable.toLocaleString("en")} of these decisions.</p>
      <div class="wide" tabindex="0" role="region" aria-label="metrics">
        <table class="plain">
          <thead><tr>{["metric", "weight", "mean", "scored", "n/a", "poor", "commonest failures"].map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
          <tbody>{names.map((name) => { const one = report.metrics[name]; return (
            <tr key={name}><th scope="row">{spoken(name)}</th><td>{digits(one.weight, 3)}</td><td>{digits(one.mean)}</td><td>{one.scored.toLocaleString("en")}</td><td>{one.na.toLocaleString("en")}</td><td>{one.poor.toLocaleString("en")}</td>
              <td>{Object.entries(one.failure_codes).map(([code, number]) => <button class="badge" key={code} onClick={() => showOnly("failure_codes", `${name}: ${code}`)}><Plain>{spoken(code)}</Plain> {number}</button>)}</td></tr>); })}</tbody>
        </table>
      </div>
      <div class="grid">{held.map((column) => <Histogram key={column} column={column} about={columnNamed(column).about} />)}</div>
      {held.length > 1 && (
        <>
          <h3>Metrics beside each other</h3>
          <div class="wide" tabindex="0" role="region" aria-label="correlations of metrics">
            <table class="matrix">
              <thead><tr><td />{held.map((column, at) => <th scope="col" key={column} title={spoken(column.slice(7))}>{at + 1}</th>)}</tr></thead>
              <tbody>{held.map((row, at) => <tr key={row}><th scope="row">{at + 1} {spoken(row.slice(7))}</th>{held.map((column) => { const r = row === column ? 1 : correlation(values.get(row), values.get(column)); return <td key={column}><span class={`shade ${r < 0 ? "negative" : ""}`} style={{ opacity: r === null ? 0 : Math.abs(r) * 0.8 }} /><span>{r === null ? "" : r.toFixed(2)}</span></td>; })}</tr>)}</tbody>
            </table>
          </div>
          <p class="note">Pearson's correlation over the dialogues that have both; empty where one does not vary.</p>
        </>
      )}
    </>
  );
}

function Facts() {
  const report = figures.factuality;
  if (!report?.dialogues) return <p>{report ? "No dialogue has its claims checked." : "The run checks no facts."}</p>;
  const bars = (held) => Object.entries(held).map(([label, number]) => ({ label: spoken(label), count: number }));
  return (
    <>
      <p>{report.mean_precision === null ? "No claims." : `Precision ${digits(report.mean_precision)} a dialogue on average.`} {plural(report.without_claims, "dialogue")} claim no facts.</p>
      {report.mean_precision !== null && <div class="grid two"><div><h3>Claims</h3><Bars rows={bars(report.labels)} /></div><div><h3>Held against</h3><Bars rows={bars(report.evidence)} /></div></div>}
    </>
  );
}

function Failures() {
  const checks = figures.judge_checks;
  if (!checks) return <p>The run has no scores of the rubric judge to compare with each other.</p>;
  return (
    <>
      {checks.sentences.map((sentence) => <p key={sentence}><Plain>{sentence}</Plain>.</p>)}
      <div class="wide" tabindex="0" role="region" aria-label="known ways of judges to fail">
        <table class="plain">
          <thead><tr>{["known way to fail", "figure", "at most", "", "what was measured"].map((name, at) => (name ? <th scope="col" key={at}>{name}</th> : <td key={at} />))}</tr></thead>
          <tbody>{checks.modes.map((mode) => (
            <tr key={mode.name}><th scope="row">{mode.name}</th><td>{mode.figure}</td><td>{mode.threshold}</td><td><span class={`badge ${mode.status === "warn" ? "bad" : mode.status === "pass" ? "good" : ""}`}>{mode.status}</span></td>
              <td class="told"><Plain>{mode.detail}</Plain>{mode.status === "warn" && mode.dialogues.length > 0 && <>: {mode.dialogues.map((id) => <a key={id} href={address("dialogue", id)}><Plain>{id}</Plain> </a>)}</>}</td></tr>
          ))}</tbody>
        </table>
      </div>
    </>
  );
}

const KINDS = { judge: "Made pairs", natural: "Pairs from the data", all: "All pairs" };

function PairChecks() {
  const { checks, decisions, agreement } = figures.pairs;
  if (!Object.keys(checks).length) return <p>The run has no pairs to check.</p>;
  return (
    <>
      {Object.entries(decisions).map(([kind, sentence]) => <p key={kind}>{kind === "fork" ? "Made pairs" : "Pairs from the data"}: <Plain>{sentence}</Plain>.</p>)}
      {agreement && <p>Agreement with the data's labels: <Plain>{agreement}</Plain>.</p>}
      {Object.entries(checks).map(([kind, report]) => (
        <div key={kind}>
          <h3>{KINDS[kind] ?? kind} <small>({report.pairs.toLocaleString("en")})</small></h3>
          <div class="wide" tabindex="0" role="region" aria-label={KINDS[kind] ?? kind}>
            <table class="plain">
              <thead><tr>{["check", "figure", "at most", "", "what was measured"].map((name, at) => (name ? <th scope="col" key={at}>{name}</th> : <td key={at} />))}</tr></thead>
              <tbody>{report.checks.map((check) => <tr key={check.name}><th scope="row">{spoken(check.name)}</th><td>{digits(check.figure)}</td><td>{digits(check.threshold)}</td><td><span class={`badge ${check.status === "warn" ? "bad" : check.status === "pass" ? "good" : ""}`}>{spoken(check.status)}</span></td><td class="told"><Plain>{check.detail}</Plain></td></tr>)}</tbody>
            </table>
          </div>
          <div class="grid">{Object.entries(report.mixes).map(([name, mix]) => <figure key={name}><figcaption>{spoken(name)}</figcaption><Bars of={report.pairs} rows={Object.entries(mix).slice(0, 12).map(([label, number]) => ({ label, count: number }))} /></figure>)}</div>
        </div>
      ))}
    </>
  );
}

function Cost() {
  const { cost } = figures;
  return (
    <>
      <p>{plural(cost.requests, "request")} in the run's last process, {cost.tokens_in.toLocaleString("en")} tokens in ({cost.tokens_cached.toLocaleString("en")} of them cached), {cost.tokens_out.toLocaleString("en")} out; {cost.cost === null ? "no prices are given, so the cost is not known" : `cost ${digits(cost.cost, 4)}`}{cost.unpriced.length > 0 && ` (without ${cost.unpriced.join(", ")}, which have no prices)`}.</p>
      {cost.rows.length > 0 ? (
        <><h3>Compared with the estimate</h3><table class="plain"><thead><tr><th scope="col">figure</th><th scope="col">expected</th><th scope="col">actual</th></tr></thead><tbody>{cost.rows.map((row) => <tr key={row.name}><th scope="row">{row.name}</th><td>{row.expected}</td><td>{row.actual}</td></tr>)}</tbody></table>
          {cost.notes.map((note) => <p class="note" key={note}><Plain>{note}</Plain></p>)}</>
      ) : <p>There is no estimate to compare it with.</p>}
      <h3>By stage</h3>
      <div class="wide" tabindex="0" role="region" aria-label="stages">
        <table class="plain">
          <thead><tr>{["stage", "seconds", "rows", "reused", "unscored", "requests", "sent", "tokens in", "tokens out"].map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
          <tbody>{[...new Set([...Object.keys(cost.seconds), ...Object.keys(cost.stages)])].map((name) => { const stage = cost.stages[name]; const cell = (key) => <td>{stage ? stage[key].toLocaleString("en") : ""}</td>; return (
            <tr key={name}><th scope="row">{spoken(name)}</th><td>{cost.seconds[name] === undefined ? "" : digits(cost.seconds[name])}</td>{cell("rows")}{cell("reused")}{cell("unscored")}{cell("requests")}{cell("requests_sent")}{cell("prompt_tokens")}{cell("completion_tokens")}</tr>); })}</tbody>
        </table>
      </div>
    </>
  );
}

function Recipe() {
  const { run } = figures;
  return (
    <>
      {Object.entries(run.identities).map(([name, identity]) => <p key={name}>{spoken(name)}: <Plain>{[identity.engine, identity.model, identity.revision, identity.quantisation, identity.mode && `mode ${identity.mode}`, identity.prompt_version && `prompts ${identity.prompt_version}`].filter(Boolean).join(", ")}</Plain></p>)}
      <details><summary>The resolved recipe</summary><pre class="code" tabindex="0"><Plain>{run.recipe}</Plain></pre></details>
    </>
  );
}
