// Figures as pictures; each has its numbers beside it, or in words for those who do not see it.
import { useEffect, useRef, useState } from "preact/hooks";
import { count, value } from "./data.js";
import { go, showRange } from "./state.js";
import { classesOf, mean, numbers, rankCorrelation } from "./statistics.js";
import { digits, plural, share, spoken } from "./text.jsx";

export const columnValues = (name) => Array.from({ length: count() }, (_, row) => {
  const held = value(name, row);
  return typeof held === "boolean" ? Number(held) : held;
});

// rows: [{label, count, title, pick}]; bars are as long as their share of `of`, or of the longest where there is none.
export function Bars({ rows, of, unit }) {
  const most = of ?? Math.max(...rows.map((row) => row.count), 1);
  return (
    <ul class="bars">
      {rows.map(({ label, count: number, title, pick, kind }) => {
        const inside = (
          <>
            <span class="bar-label" title={title}><bdi>{label}</bdi></span>
            <span class="bar"><span class={`bar-fill ${kind ?? ""}`} style={{ width: `${(100 * number) / most}%` }} /></span>
            <span class="bar-count">{number.toLocaleString("en")} <small>{share(number, of)}</small></span>
          </>
        );
        return <li key={label}>{pick ? <button class="bar-row" onClick={pick} title={`Show these ${unit ?? "dialogues"}`}>{inside}</button> : <div class="bar-row">{inside}</div>}</li>;
      })}
    </ul>
  );
}

export function Histogram({ column, about }) {
  const values = columnValues(column);
  const classes = classesOf(values, column.startsWith("metric_") ? 0 : 1);
  if (!classes.length) return null;
  const most = Math.max(...classes.map((one) => one.count));
  const missing = values.length - numbers(values).length;
  const [first, last] = [classes[0], classes[classes.length - 1]];
  return (
    <figure class="histogram">
      <figcaption title={about}>{spoken(column)}</figcaption>
      <div class="columns">
        {classes.map((one) => (
          <button key={one.label} class="column" title={`${one.label}: ${plural(one.count, "dialogue")}`}
            aria-label={`${spoken(column)} ${one.label}: ${plural(one.count, "dialogue")}`} onClick={() => showRange(column, one.low, one.high)}>
            <span style={{ height: `${(100 * one.count) / most}%` }} />
          </button>
        ))}
      </div>
      <div class="axis"><span>{digits(first.low)}</span><span>mean {digits(mean(values))}</span><span>{digits(last.high)}</span></div>
      {missing > 0 && <small>{plural(missing, "dialogue")} without</small>}
    </figure>
  );
}

const SIDE = 14;

// How two columns lie to each other: dialogues in each of 14 by 14 classes, the darker the more.
export function Relation({ x, y }) {
  const [xs, ys] = [columnValues(x), columnValues(y)];
  const [xEdges, yEdges] = [edges(xs), edges(ys)];
  if (!xEdges || !yEdges) return <p>One of the two has no values.</p>;
  const cells = new Map();
  let most = 0;
  xs.forEach((one, at) => {
    if (one === null || ys[at] === null) return;
    const cell = classAt(one, xEdges) * SIDE + classAt(ys[at], yEdges);
    cells.set(cell, (cells.get(cell) ?? 0) + 1);
    most = Math.max(most, cells.get(cell));
  });
  const rank = rankCorrelation(xs, ys);
  const said = rank === null ? "one of the two does not vary" : `rank correlation ${rank.toFixed(2)}`;
  return (
    <figure class="relation">
      <svg viewBox="0 0 280 280" role="img" aria-label={`${spoken(y)} by ${spoken(x)}: ${said}`}>
        <rect width="280" height="280" class="ground" />
        {[...cells].map(([cell, number]) => (
          <rect key={cell} class="cell" x={Math.floor(cell / SIDE) * 20} y={(SIDE - 1 - (cell % SIDE)) * 20} width="20" height="20"
            fill-opacity={0.15 + 0.85 * Math.sqrt(number / most)}>
            <title>{plural(number, "dialogue")}</title>
          </rect>
        ))}
      </svg>
      <div class="axis"><span>{digits(xEdges.low)}</span><span>{spoken(x)}</span><span>{digits(xEdges.high)}</span></div>
      <figcaption>{spoken(y)} from {digits(yEdges.low)} (below) to {digits(yEdges.high)}; {said} (Spearman).</figcaption>
    </figure>
  );
}

function edges(values) {
  const held = numbers(values);
  if (!held.length) return null;
  let low = Infinity;
  let high = -Infinity;
  for (const one of held) {
    if (one < low) low = one;
    if (one > high) high = one;
  }
  return { low, high };
}
const classAt = (one, { low, high }) => (high === low ? 0 : Math.min(SIDE - 1, Math.floor(((one - low) / (high - low)) * SIDE)));

// Counts in a table of classes (lengths by levels), coloured by the share of the row.
export function CountTable({ rows, columns, counts, corner }) {
  return (
    <div class="wide" tabindex="0" role="region" aria-label={corner}>
      <table class="counts">
        <thead><tr><th scope="col">{corner}</th>{columns.map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
        <tbody>
          {rows.map((name, at) => {
            const whole = counts[at].reduce((sum, one) => sum + one, 0);
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                {counts[at].map((number, place) => <td key={place}><span class="shade" style={{ opacity: whole ? number / whole : 0 }} /><span>{number ? number.toLocaleString("en") : ""}</span></td>)}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

// points: [{x, y, low, high, title}], y from `bottom` to `top`.
export function Line({ points, bottom, top, label, below }) {
  const width = 560, height = 180, left = 34, under = 22;
  const last = Math.max(points[points.length - 1].x, points[0].x + 1);
  const x = (one) => left + ((one - points[0].x) / (last - points[0].x)) * (width - left - 8);
  const y = (one) => 6 + (1 - (one - bottom) / (top - bottom)) * (height - under - 6);
  const band = points.filter((point) => point.low !== null && point.low !== undefined);
  const steps = [bottom, (bottom + top) / 2, top];
  return (
    <figure class="line">
      <figcaption>{label}</figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${label}: ${points.map((point) => `${point.x}: ${digits(point.y)}`).slice(0, 30).join(", ")}`}>
        {steps.map((step) => (
          <g key={step}><line class="grid" x1={left} x2={width - 8} y1={y(step)} y2={y(step)} /><text x={left - 6} y={y(step) + 4} text-anchor="end">{digits(step)}</text></g>
        ))}
        {band.length > 1 && <polygon class="band" points={[...band.map((p) => `${x(p.x)},${y(p.high)}`), ...[...band].reverse().map((p) => `${x(p.x)},${y(p.low)}`)].join(" ")} />}
        <polyline class="curve" points={points.map((p) => `${x(p.x)},${y(p.y)}`).join(" ")} />
        {points.length <= 60 && points.map((p) => <circle key={p.x} class="dot" cx={x(p.x)} cy={y(p.y)} r="3"><title>{p.title}</title></circle>)}
        <text x={left} y={height - 4}>{points[0].x}</text>
        <text x={(left + width) / 2} y={height - 4} text-anchor="middle">{below}</text>
        <text x={width - 8} y={height - 4} text-anchor="end">{points[points.length - 1].x}</text>
      </svg>
    </figure>
  );
}

const SHOWN = 300;
const TURNS = 60;
// The colours of levels 1-5 in style.css.
const COLOURS = ["#e8703a", "#f4b183", "#e6e3d8", "#a9cbe3", "#5b9bd0"];
const colourOf = (sign, strip) => (sign === "-" ? "#8886" : COLOURS[strip === "turn_roles" ? Math.min(4, Math.floor(Number(sign) / 2)) : Number(sign) - 1]);

// A row a dialogue, the worst first; a cell a turn.
export function TurnMap({ strip }) {
  const canvas = useRef(null);
  const [under, setUnder] = useState("");
  const key = (row) => value("mean_score", row) ?? value("adherence", row) ?? value("overall_score", row);
  const scored = [];
  for (let row = 0; row < count(); row++) if (value(strip, row)) scored.push(row);
  scored.sort((a, b) => (key(a) ?? 9) - (key(b) ?? 9));
  const step = Math.max(1, scored.length / SHOWN);
  const rows = Array.from({ length: Math.min(SHOWN, scored.length) }, (_, at) => scored[Math.floor(at * step)]);
  // Turn 0 is there only where the assistant opens, and the rubric scores none.
  const first = rows.length ? Math.min(...rows.map((row) => value(strip, row).search(/\S/))) : 0;
  const turns = Math.max(1, Math.min(TURNS, Math.max(...rows.map((row) => value(strip, row).length - first))));
  const [width, height] = [Math.max(8, Math.min(28, Math.floor(640 / turns))), Math.max(2, Math.min(12, Math.floor(420 / (rows.length || 1))))];
  useEffect(() => {
    const context = canvas.current.getContext("2d");
    context.clearRect(0, 0, turns * width, rows.length * height);
    rows.forEach((row, at) => {
      [...value(strip, row).slice(first, first + TURNS)].forEach((sign, column) => {
        if (sign === " ") return;
        context.fillStyle = colourOf(sign, strip);
        context.fillRect(column * width, at * height, width - 1, height > 3 ? height - 1 : height);
      });
    });
  }, [strip]);
  const found = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const at = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
    const turn = first + Math.floor(((event.clientX - box.left) / box.width) * turns);
    return { row: rows[Math.max(0, Math.min(rows.length - 1, at))], turn };
  };
  if (!rows.length) return <p>No turns are scored.</p>;
  return (
    <figure class="turn-map">
      <canvas ref={canvas} width={turns * width} height={rows.length * height} role="img"
        aria-label={`${plural(rows.length, "dialogue")} by turn, the worst first; the same is in the list of dialogues`}
        onMouseMove={(event) => { const { row, turn } = found(event); setUnder(`${value("id", row)}, turn ${turn}`); }}
        onClick={(event) => { const { row, turn } = found(event); go("dialogue", value("id", row), turn); }} />
      <figcaption>
        {scored.length > rows.length ? `${plural(rows.length, "dialogue")} of ${scored.length.toLocaleString("en")}, evenly drawn` : plural(rows.length, "dialogue")}, the
        lowest mean score first; one column for each turn, from turn {first}. Click one to open it. <Key strip={strip} /> <bdi class="under">{under}</bdi>
      </figcaption>
    </figure>
  );
}

export const Key = ({ strip }) => (
  <span class="key">
    {COLOURS.map((colour, at) => <span key={colour} class={`level level-${at + 1}`}>{strip === "turn_roles" ? (["0-.2", ".2-.4", ".4-.6", ".6-.8", ".8-1"])[at] : at + 1}</span>)}
  </span>
);

// The turns of one dialogue, a cell each.
export function Strip({ row }) {
  const name = value("turn_scores", row)?.match(/\d/) ? "turn_scores" : "turn_roles";
  const signs = value(name, row) ?? "";
  return (
    <span class="strip" aria-hidden="true">
      {[...signs.slice(0, 30).trimStart()].map((sign, at) => <span key={at} class={sign === " " ? "no-turn" : sign === "-" ? "unscored" : `level-${name === "turn_roles" ? Math.min(5, Math.floor(Number(sign) / 2) + 1) : sign}`} />)}
      {signs.length > 30 && <span class="further">…</span>}
    </span>
  );
}

// Mean by turn of what a strip holds: [{turn, mean, dialogues}].
export function meansByTurn(strip) {
  const sums = [];
  for (let row = 0; row < count(); row++) {
    const signs = value(strip, row) ?? "";
    for (let turn = 0; turn < signs.length && turn < 100; turn++) {
      if (signs[turn] === " " || signs[turn] === "-") continue;
      const held = (sums[turn] ??= { turn, sum: 0, dialogues: 0 });
      held.sum += Number(signs[turn]);
      held.dialogues += 1;
    }
  }
  return sums.filter(Boolean).map(({ turn, sum, dialogues }) => ({ turn, mean: sum / dialogues, dialogues }));
}

