// A pair: both sides with the words in which they differ, what verification read, and what was decided.
import { diffWordsWithSpace } from "diff";
import { useMemo } from "preact/hooks";
import { figures } from "./data.js";
import { Plain, digits, spoken } from "./text.jsx";
import { Calls } from "./message.jsx";

const LONGEST = 60_000; // characters of both sides together, beyond which a diff takes too long

const said = (message) => message?.content ?? "";

export function Pair({ pair }) {
  const [rejected, chosen] = [said(pair.rejected), said(pair.chosen)];
  const parts = useMemo(
    () => (rejected.length + chosen.length > LONGEST ? null : diffWordsWithSpace(rejected, chosen)),
    [rejected, chosen],
  );
  const meaning = figures.meanings[pair.drop_reason];
  return (
    <section class={`pair ${pair.drop_reason ? "dropped" : "passed"}`} id={`pair-${pair.pair_id}`} aria-label={`pair ${pair.pair_id}`}>
      <h4>
        Pair, {pair.source === "none" ? "no other reply was made" : pair.basis === "judge" ? `made by ${pair.source}` : `from the data (${pair.basis})`}:{" "}
        {pair.drop_reason ? <span class="badge bad" title={meaning}>dropped: {spoken(pair.drop_reason)}</span> : <span class="badge good">passed</span>}
        {pair.turn !== undefined && <small> turn {pair.turn}</small>}
      </h4>
      {meaning && <p>{meaning}.</p>}
      {pair.detail && <p class="note"><Plain>{pair.detail}</Plain></p>}
      {pair.issue && <p class="note">What the judge found wrong with the rejected side: <Plain>{pair.issue}</Plain></p>}
      <div class="sides">
        <Side title="Rejected" message={pair.rejected} parts={parts} text={rejected} leave="added" />
        {pair.chosen ? <Side title="Chosen" message={pair.chosen} parts={parts} text={chosen} leave="removed" /> : <div class="side"><h5>Chosen</h5><p>There was none.</p></div>}
      </div>
      {pair.changes?.length > 0 && (
        <p class="note">
          Changed: {pair.changes.map((change, at) => (
            <span key={at}>{at ? "; " : ""}{change.kind}{change.removed?.length ? <> without <Plain>{change.removed.join(", ")}</Plain></> : ""}{change.added?.length ? <> with <Plain>{change.added.join(", ")}</Plain></> : ""}</span>
          ))}
        </p>
      )}
      <Check check={pair.check} />
    </section>
  );
}

function Side({ title, message, parts, text, leave }) {
  const shown = parts?.filter((part) => !part[leave]);
  return (
    <div class={`side ${title.toLowerCase()}`}>
      <h5>{title}</h5>
      <div class="text" dir="auto">
        {shown ? shown.map((part, at) => (part.added ? <ins key={at}><Plain>{part.value}</Plain></ins> : part.removed ? <del key={at}><Plain>{part.value}</Plain></del> : <Plain key={at}>{part.value}</Plain>)) : <Plain>{text}</Plain>}
      </div>
      <Calls calls={message?.tool_calls} />
    </div>
  );
}

const NAMES = {
  preference: "preference (log-odds that chosen is better, mean of both orders)",
  log_odds_first: "log-odds, chosen shown first",
  log_odds_second: "log-odds, chosen shown second",
  margin: "margin (mean difference of scores)",
  noise: "standard error of the margin",
  evidence: "evidence that decided (log-odds)",
  required: "evidence needed",
  token_ratio: "length of chosen over rejected",
};

function Check({ check }) {
  if (!check) return <p class="note">It was not verified.</p>;
  const rows = Object.entries(check).filter(([, held]) => held !== null && !(Array.isArray(held) && !held.length));
  const scores = (held) => Object.entries(held).map(([name, one]) => `${spoken(name)} ${digits(one)}`).join(", ");
  const show = (held) => (Array.isArray(held) ? held.map((one) => (typeof one === "number" ? digits(one) : one)).join(", ") : typeof held === "object" ? scores(held) : typeof held === "number" ? digits(held, 3) : String(held));
  return (
    <details class="check" open>
      <summary>What the verification measured</summary>
      <table class="plain"><tbody>
        {rows.filter(([, held]) => typeof held !== "object" || Object.keys(held).length).map(([name, held]) => <tr key={name}><th scope="row">{NAMES[name] ?? spoken(name)}</th><td><Plain>{show(held)}</Plain></td></tr>)}
      </tbody></table>
    </details>
  );
}
