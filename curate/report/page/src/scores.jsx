// What was said of a dialogue and of its turns: levels, issues, violations of the role, metrics.
import { address } from "./state.js";
import { Plain, digits, spoken } from "./text.jsx";

export const Verdict = ({ verdict }) => <span class={`badge verdict-${verdict}`}>{verdict}</span>;

export const byTurn = (record) => new Map((record?.per_turn ?? []).map((turn) => [turn.turn, turn]));
export const leastOf = (scores) => (scores ? Math.min(...Object.values(scores.scores)) : null);
// Words of a turn that are judged false, to be marked.
export const untrue = (facts) => (facts?.claims ?? []).filter((claim) => claim.label === "false").map((claim) => ({ words: claim.words, kind: "untrue", title: "judged false" }));

export function ConversationLevel({ judgment }) {
  const level = judgment?.conversation_level;
  if (!level) return null;
  return (
    <dl class="levels">
      {Object.entries(level).map(([name, entry]) => (
        <div key={name}>
          <dt>{spoken(name)}</dt>
          <dd><Level score={entry.score} reading={entry.reading} /> {entry.note && <Plain>{entry.note}</Plain>}</dd>
        </div>
      ))}
    </dl>
  );
}

export const Level = ({ score, reading }) => (
  <span class={`level level-${score}`} title={reading?.mean ? `expectation ${digits(reading.mean)}` : undefined}>{score}</span>
);

export const Reason = ({ reason }) => (
  <p class={reason.violation ? "issue" : "note"}>
    role{reason.violation ? `, ${reason.violation}` : ""}: <Plain>{reason.text}</Plain>
    {reason.role_words && <> (<q><Plain>{reason.role_words}</Plain></q>)</>}{reason.fault && ` [${reason.fault}]`}
  </p>
);

export const Adherence = ({ record }) => (
  <>Role adherence {digits(record.session_score)} (95 % {digits(record.interval[0])} to {digits(record.interval[1])}), {record.adherent ? "adherent" : "not adherent"}</>
);

// The scores of a turn in its heading.
export function TurnScores({ scores, role, isWeakest }) {
  const inRole = role?.score ?? null;
  return (
    <>
      {scores && Object.entries(scores.scores).map(([name, score]) => (
        <span class="score" key={name}>{spoken(name)} <Level score={score} reading={scores.readings?.[name]} /></span>
      ))}
      {role && <span class="score">role <span class={`level level-${inRole === null ? "none" : Math.min(5, Math.floor(inRole * 5) + 1)}`}>{inRole === null ? spoken(role.unscored ?? "unscored") : digits(inRole)}</span></span>}
      {isWeakest && <span class="badge bad">weakest turn</span>}
    </>
  );
}

// What was found wrong in a turn, beside its text.
export const Findings = ({ scores, role, faults, facts }) => (
  <>
    {(scores?.issues ?? []).map((issue, at) => <p class="issue" key={at}><Plain>{issue}</Plain></p>)}
    {role?.reason && <Reason reason={role.reason} />}
    {faults.map((metric) => <p class="issue" key={metric.name}>{spoken(metric.name)}: <Plain>{spoken(metric.failure_code)}</Plain></p>)}
    {(facts?.claims ?? []).map((claim, at) => <p key={at} class={claim.label === "false" ? "issue" : "note"}>{spoken(claim.label)}{claim.evidence ? ` (${spoken(claim.evidence)})` : ""}: <Plain>{claim.words}</Plain></p>)}
  </>
);

export function Metrics({ record, id }) {
  const shown = (metric) => (metric.score === null || metric.score === undefined ? `n/a (${spoken(metric.na)})` : metric.scale === "binary" ? ["fail", "pass"][metric.score] : `${metric.score} of 5`);
  const [low, high] = record.overall_range;
  return (
    <details class="metrics" open>
      <summary>Metrics: {digits(record.overall_score, 1)} of 100, {record.passed ? "pass" : "fail"} (threshold {digits(record.pass_threshold)}; {digits(low, 1)} to {digits(high, 1)} with weights changed by up to 20 %)</summary>
      <div class="wide" tabindex="0" role="region" aria-label="metrics of this dialogue">
      <table class="plain">
        <thead><tr><th scope="col">metric</th><th scope="col">score</th><th scope="col">share</th><th scope="col">what went wrong</th><th scope="col">turns</th></tr></thead>
        <tbody>
          {record.metrics.map((metric) => (
            <tr key={metric.name}>
              <th scope="row">{spoken(metric.name)}</th><td class="unbroken">{shown(metric)}</td><td class="unbroken">{(100 * metric.share).toFixed(0)} %</td>
              <td><Plain>{spoken(metric.failure_code ?? "")}</Plain></td>
              <td>{(metric.turns ?? []).map((turn) => <a key={turn} href={address("dialogue", id, turn)}>{turn} </a>)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      </div>
      {record.calls && <p class="note">Tool calls: {record.calls.matches?.length ?? 0} of {record.calls.expected} expected were made, {record.calls.unexpected?.length ?? 0} others{record.calls.in_order ? "" : ", not in the expected order"}.</p>}
    </details>
  );
}
