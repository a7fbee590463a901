// One message of a dialogue: its text, and folded what else it holds.
import { Plain, Text } from "./text.jsx";

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

export function Calls({ calls = [] }) {
  return calls.map((call, at) => (
    <details key={at} class="call">
      <summary>calls <code><Plain>{call.name}</Plain></code></summary>
      <Text text={written(call.arguments ?? {})} />
    </details>
  ));
}

export function Message({ message, marks }) {
  const { role, content = "", name, tool_calls: calls, reasoning } = message;
  const text = content ? <Text text={content} marks={marks} /> : null;
  return (
    <div class={`message ${role}`}>
      <div class="who">{role}{name && <> <Plain>{name}</Plain></>}</div>
      {reasoning && <details><summary>thought</summary><Text text={reasoning} /></details>}
      {role === "tool" && content.length > 200 ? <details><summary>result, {content.length.toLocaleString("en")} characters</summary>{text}</details> : text}
      <Calls calls={calls} />
    </div>
  );
}
