// The page's own server: questions as JSON, replies as one JSON object a line; and the other calls of the service.

import { scoped, token } from "./session.js";

/** What the server, or the way to it, said instead of a reply. */
export class Trouble extends Error {
  constructor(kind, message, retryAfterS = null) {
    super(message);
    this.kind = kind;
    this.retryAfterS = retryAfterS;
  }
}

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const sent = body instanceof Blob ? body : JSON.stringify(body);
  const options = { method: "POST", headers, body: sent, signal, credentials: "same-origin", cache: "no-store" };
  return fetch(path, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Trouble("Unreachable", "the page's server does not answer");
  });
}

const MISSING = new Set([404, 405, 501]); // a service of an older version

async function refusal(response) {
  const said = await response.json().catch(() => ({}));
  const error = said.error ?? said;
  const message = error.message ?? `the server said ${response.status} ${response.statusText}`;
  const missing = error.code === "unimplemented" || (MISSING.has(response.status) && !error.code && !error.kind);
  if (missing) return new Trouble("Unsupported", "this service does not offer it");
  return new Trouble(error.kind ?? reason(error) ?? "Unknown", message, error.retry_after_s ?? null);
}

/** The class of an error that carries google.rpc details: "NOT_FOUND_ERROR" is NotFoundError. */
function reason(error) {
  const found = (error.details ?? []).map((one) => one.reason ?? one.debug?.reason).find(Boolean);
  return found?.toLowerCase().replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase());
}

const NUMBERS = new Set(["start", "end", "total_chars", "relation_count", "source_count", "member_count", "documents", "distinct", "integer", "page", "row"]);

/** A message in JSON with names as the proto has them, and 64-bit numbers as numbers. */
function plain(value, name = "") {
  if (Array.isArray(value)) return value.map((one) => plain(one, name));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => {
      const known = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      return [known, plain(one, known)];
    }));
  }
  return typeof value === "string" && NUMBERS.has(name) && /^-?\d+$/.test(value) ? Number(value) : value;
}

/** A unary call of the service, by the name of its method; index and filters are added. */
export async function call(method, request, signal) {
  const response = await post(`/hirag.query.v1.QueryService/${method}`, scoped(request), signal);
  if (!response.ok) throw await refusal(response);
  return plain(await response.json());
}

/** Names of the indexes that this caller may ask; none where the service has only one. */
export async function indexes() {
  try {
    const response = await post("/hirag.query.v1.QueryService/ListIndexes", { page_size: 1000 });
    return response.ok ? (plain(await response.json()).indexes ?? []) : [];
  } catch {
    return [];
  }
}

/** {info: what the index holds}. */
export async function describe() {
  const response = await post("/api/describe", scoped().index ? { index: scoped().index } : {});
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** Yields {type: "retrieval", level, retrieval}, {type: "text", text} and {type: "answer", answer} as they come. */
export async function* ask(question, signal) {
  const response = await post("/api/ask", question, signal);
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  let whole = false;
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Trouble("Broken", "the connection was lost in the middle of the reply");
    });
    if (done) break;
    const lines = (held + value).split("\n");
    held = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      if (message.type === "error") throw new Trouble(message.error.kind, message.error.message, message.error.retry_after_s);
      whole = message.type === "answer" || (message.type === "retrieval" && message.level === "done" && !question.answer);
      yield message;
    }
  }
  if (!whole) throw new Trouble("Broken", "the reply ended before it was complete");
}
