// A threshold by hand: how many dialogues it keeps, and which, as it is moved.
import { useState } from "preact/hooks";
import { columnValues } from "./charts.jsx";
import { count, figures, hasColumn, numberColumns, value } from "./data.js";
import { numbers } from "./statistics.js";
import { digits, plural, share } from "./text.jsx";

const GROUPS = ["verdict", "role", "language", "source"];
const SHOWN = 12;

export function Threshold() {
  const columns = numberColumns().map((column) => column.name);
  const [column, setColumn] = useState(["mean_score", "adherence", "overall_score"].find(hasColumn) ?? columns[0]);
  const [above, setAbove] = useState(true);
  const [place, setPlace] = useState(50);
  if (!columns.length) return <p class="pane-note">The run has no scores.</p>;
  const values = columnValues(column);
  const sorted = numbers(values).sort((a, b) => a - b);
  const [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const isWhole = sorted.every(Number.isInteger) && high - low < 1000;
  const raw = low + ((high - low) * place) / 100;
  const bound = isWhole ? Math.round(raw) : Number(raw.toPrecision(4));
  const isKept = (one) => one !== null && (above ? one >= bound : one <= bound);
  const kept = values.filter(isKept).length;
  const sign = above ? ">=" : "<=";
  return (
    <div class="overview">
      <h1>A threshold by hand</h1>
      <p class="choices">
        <label>Score <select value={column} onChange={(event) => setColumn(event.target.value)}>{columns.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
        <label>keep <select value={above ? "above" : "below"} onChange={(event) => setAbove(event.target.value === "above")}><option value="above">at least</option><option value="below">at most</option></select></label>
      </p>
      <p class="slider"><label for="bound">{column} {sign} {digits(bound, 4)}</label>
        <input id="bound" type="range" min="0" max="100" step="any" value={place} onInput={(event) => setPlace(Number(event.target.value))} aria-valuetext={digits(bound, 4)} /></p>
      <p aria-live="polite"><strong>{plural(kept, "dialogue")}</strong> of {count().toLocaleString("en")} ({share(kept, count())}); {plural(values.length - sorted.length, "dialogue")} without this score fail it.{figures.parts.length > 0 && " Counted in this part of the report."}</p>
      <p>In the recipe:</p>
      <pre class="code" tabindex="0">{`select:\n  where:\n    ${column}: ${column} ${sign} ${bound}`}</pre>
      <div class="grid two">
        {GROUPS.filter(hasColumn).map((group) => {
          const counts = new Map();
          values.forEach((one, row) => {
            const name = value(group, row) ?? "none";
            const held = counts.get(name) ?? [0, 0];
            counts.set(name, [held[0] + (isKept(one) ? 1 : 0), held[1] + 1]);
          });
          const rows = [...counts].sort((a, b) => b[1][1] - a[1][1]);
          return (
            <figure key={group}><figcaption>{group}: kept of each</figcaption>
              <table class="plain"><tbody>{rows.slice(0, SHOWN).map(([name, [part, all]]) => <tr key={name}><th scope="row"><bdi>{name}</bdi></th><td>{part.toLocaleString("en")} of {all.toLocaleString("en")}</td><td>{share(part, all)}</td></tr>)}</tbody></table>
              {rows.length > SHOWN && <p class="note">and {plural(rows.length - SHOWN, "more value")}</p>}
            </figure>
          );
        })}
      </div>
    </div>
  );
}
