// Texts to take away: the current request in three languages, and what a bug report needs.
import { duration, t } from "./ui.js";

// requestAsCode gives a program that sends body to the server's OpenAI-compatible address. Every text is quoted by the rules
// of its language, so that a conversation can hold any character.
export function requestAsCode(language, body, session) {
  const base = session.server.models ? new URL("v1", document.baseURI).href : "http://127.0.0.1:8080/v1";
  const messages = body.messages.length ? body.messages : [{ role: "user", content: t("suggest1") }];
  const request = { ...body, model: body.model || "ernie-tiny", messages };
  const json = JSON.stringify(request, null, 2);
  switch (language) {
    case "javascript":
      return `const response = await fetch(${JSON.stringify(`${base}/chat/completions`)}, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(${json.replaceAll("\n", "\n  ")}),
});
const { choices } = await response.json();
console.log(choices[0].message.content);`;
    case "python":
      return `from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(base)}, api_key="none")
answer = client.chat.completions.create(
${Object.entries(request).map(([key, value]) => python(key, value)).join("\n")}
)
print(answer.choices[0].message.content)`;
    default:
      return `curl ${base}/chat/completions \\
  -H 'Content-Type: application/json' \\
  -d '${json.replaceAll("'", "'\\''")}'`;
  }
}

// JSON's strings and numbers are Python's too. The client has no top_k of its own: it goes into extra_body.
function python(key, value) {
  if (key === "top_k") return `    extra_body={"top_k": ${value}},`;
  return `    ${key}=${JSON.stringify(value, null, 4).replaceAll("\n", "\n    ")},`;
}

// report is plain text, made to be pasted into an issue. It has no word of any conversation.
export function report(session, stats, results) {
  const { info, adapter, place, phase, error, waterfall, losses } = session;
  const failed = results?.filter((result) => !result.ok) ?? [];
  return [
    "Pagelight bug report",
    `browser    ${navigator.userAgent}`,
    `place      ${place}, ${phase}, secure context ${isSecureContext}, WebGPU ${"gpu" in navigator}`,
    `error      ${error ? `${error.code}: ${error.message}` : "none"}; devices lost: ${losses}`,
    `model      ${session.modelName}`,
    `adapter    ${JSON.stringify(info?.adapter ?? adapter?.info ?? adapter?.reason ?? null)}`,
    `limits     ${JSON.stringify(info?.limits ?? adapter?.limits ?? null)}`,
    `engine     ${JSON.stringify(info && { ...info, adapter: undefined, limits: undefined })}`,
    `stats      ${JSON.stringify(stats && { ...stats, sequences: stats.sequences?.length })}`,
    `loading    ${waterfall.map((row) => `${row.phase} ${duration(row.end - row.start)}`).join(", ") || "none"}`,
    `self-test  ${results ? `${results.length - failed.length} of ${results.length} passed` : "not run"}`,
    ...failed.map((result) => `           ${result.name}: ${result.message}`),
  ].join("\n").replaceAll("\u00a0", " ");
}
