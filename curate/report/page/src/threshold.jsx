// A threshold by hand: how many dialogues it keeps, and which, as it is moved; and what a certificate promises of them.
import { useState } from "preact/hooks";
import { columnValues } from "./charts.jsx";
import { columnNamed, count, figures, hasColumn, numberColumns, value } from "./data.js";
import { numbers } from "./statistics.js";
import { Plain, digits, plural, share } from "./text.jsx";

const GROUPS = ["verdict", "language", "source", "role"];
const SHOWN = 12;
const certificate = figures.threshold;

export function Threshold() {
  const columns = numberColumns().map((column) => column.name);
  const [column, setColumn] = useState([certificate?.column, "mean_score", "adherence", "overall_score"].find((name) => name && hasColumn(name)) ?? columns[0]);
  const [above, setAbove] = useState(true);
  const [chosen, setChosen] = useState(null);
  if (!columns.length) return <p class="pane-note">The run has no scores.</p>;
  const values = columnValues(column);
  const sorted = numbers(values).sort((a, b) => a - b);
  const [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const isWhole = sorted.every(Number.isInteger) && high - low < 1000;
  const steps = certificate?.column === column ? certificate.steps : [];
  const bound = chosen ?? steps.at(-1)?.at ?? (isWhole ? Math.round((low + high) / 2) : Number(((low + high) / 2).toPrecision(4)));
  const isKept = (one) => one !== null && (above ? one >= bound : one <= bound);
  const kept = values.filter(isKept).length;
  const sign = above ? ">=" : "<=";
  const step = above ? steps.find(({ at }) => at === bound) : undefined;
  const pick = (name) => (setColumn(name), setChosen(null));
  return (
    <div class="overview">
      <h1>A threshold by hand</h1>
      <p class="choices">
        <label>Score <select value={column} onChange={(event) => pick(event.target.value)}>{columns.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
        <label>keep <select value={above ? "above" : "below"} onChange={(event) => setAbove(event.target.value === "above")}><option value="above">at least</option><option value="below">at most</option></select></label>
      </p>
      <p class="slider"><label for="bound">{column} {sign} {digits(bound, 4)}</label>
        <input id="bound" type="range" min={low} max={high} step={isWhole ? 1 : "any"} value={bound} onInput={(event) => setChosen(isWhole ? Number(event.target.value) : Number(Number(event.target.value).toPrecision(4)))} aria-valuetext={digits(bound, 4)} /></p>
      <p aria-live="polite"><strong>{plural(kept, "dialogue")}</strong> of {count().toLocaleString("en")} ({share(kept, count())}){values.length > sorted.length && `; ${plural(values.length - sorted.length, "dialogue")} without this score ${values.length - sorted.length === 1 ? "fails" : "fail"} it`}.{figures.parts.length > 0 && " Counted in this part of the report."}</p>
      {certificate && <Certified column={column} above={above} bound={bound} kept={kept} values={values} setBound={setChosen} pick={pick} />}
      <p>In the recipe:</p>
      <pre class="code" tabindex="0">{`select:\n  where:\n    ${column}: ${column} ${sign} ${step?.threshold ?? bound}`}</pre>
      <div class="grid two">
        {GROUPS.filter(hasColumn).map((group) => <Group key={group} group={group} values={values} isKept={isKept} kept={kept} />)}
      </div>
    </div>
  );
}

// What the certificate says of the threshold that is set. It holds at the thresholds that passed; between two of them no more
// can be bad than at the looser one, which bounds the share.
function Certified({ column, above, bound, kept, values, setBound, pick }) {
  const { steps, risk, confidence, named, bad } = certificate;
  const percent = (one) => `${digits(100 * one, 1)} %`;
  if (column !== certificate.column || !above) return <p class="note">A certificate holds for {certificate.column} at or above a threshold. <button onClick={() => pick(certificate.column)}>Show it</button></p>;
  const keptAt = ({ at }) => values.filter((one) => one !== null && one >= at).length;
  const isAll = steps.every((step) => keptAt(step) === step.kept);
  const here = steps.find((step) => step.at === bound || (isAll && step.kept === kept));
  const looser = steps.find((step) => step.at <= bound);
  const most = looser && isAll && kept ? (risk * looser.kept) / kept : 1;
  return (
    <div class="certified" aria-live="polite">
      {here ? <p><span class="badge good">certified</span> With {percent(confidence)} confidence at most {percent(risk)} of the {here.kept.toLocaleString("en")} {named} at or above {digits(here.at, 4)} are bad (<Plain>{bad}</Plain>).</p>
        : !looser ? <p><span class="badge bad">not certified</span> Nothing is certified below {digits(steps.at(-1).at, 4)}, the loosest threshold that is certified.</p>
        : <p><span class="badge">between certified thresholds</span> {most < 1 ? `With ${percent(confidence)} confidence at most ${percent(most)} of these ${kept.toLocaleString("en")} are bad, for no more can be than at ${digits(looser.at, 4)}.` : "Nothing is certified for exactly these."}</p>}
      <p class="choices">Certified at: {steps.map((step) => <button key={step.at} class={step === here ? "on good" : ""} aria-pressed={step === here} onClick={() => setBound(step.at)}>{digits(step.at, 4)}</button>)}</p>
    </div>
  );
}

// Of each value of a column what is kept, and what share of the kept ones has it.
function Group({ group, values, isKept, kept }) {
  const counts = new Map();
  values.forEach((one, row) => {
    const name = value(group, row) ?? "none";
    const held = counts.get(name) ?? [0, 0];
    counts.set(name, [held[0] + (isKept(one) ? 1 : 0), held[1] + 1]);
  });
  // The best first where the values have an order, as verdicts do; else the commonest.
  const order = columnNamed(group)?.order ?? [];
  const rows = [...counts].sort((a, b) => order.indexOf(b[0]) - order.indexOf(a[0]) || b[1][1] - a[1][1]);
  return (
    <figure>
      <table class="plain shares">
        <thead><tr><th scope="col">{group}</th><th scope="col">kept</th><th scope="col">share</th><th scope="col">of all kept</th></tr></thead>
        <tbody>{rows.slice(0, SHOWN).map(([name, [part, all]]) => <tr key={name}><th scope="row"><Plain>{name}</Plain></th><td>{part.toLocaleString("en")} of {all.toLocaleString("en")}</td><td>{share(part, all)}</td><td>{share(part, kept)}</td></tr>)}</tbody>
      </table>
      {rows.length > SHOWN && <p class="note">and {plural(rows.length - SHOWN, "more value")}</p>}
    </figure>
  );
}
