// The calls of the service, as JSON over HTTP: messages with the names of the proto, and streams as server-sent events.

import { scoped, token } from "./session.js";

/** What the server, or the way to it, said instead of a reply. */
export class Trouble extends Error {
  constructor(kind, message, retryAfterS = null) {
    super(message);
    this.kind = kind;
    this.retryAfterS = retryAfterS;
  }
}

const RPC = "/hirag.query.v1.QueryService/";

function post(method, body, signal, more = {}) {
  const headers = { "Content-Type": "application/json", ...more };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const options = { method: "POST", headers, body: JSON.stringify(body), signal, credentials: "same-origin", cache: "no-store" };
  return fetch(RPC + method, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Trouble("Unreachable", "the page's server does not answer");
  });
}

const MISSING = new Set([404, 405, 501]); // a service of an older version

async function refusal(response) {
  const error = await response.json().catch(() => ({}));
  if (error.code === "unimplemented" || (MISSING.has(response.status) && !error.code)) return new Trouble("Unsupported", "this service does not offer it");
  return trouble({ message: `the server said ${response.status} ${response.statusText}`, ...error });
}

/** An error of the API as what the page explains. */
function trouble(error) {
  const delay = (error.details ?? []).map((one) => one.debug?.retryDelay).find(Boolean);
  const kind = reason(error) ?? (error.code === "permission_denied" ? "Forbidden" : "Unknown");
  return new Trouble(kind, error.message, delay ? Number.parseFloat(delay) : null);
}

/** The class of an error that carries google.rpc details: "NOT_FOUND_ERROR" is NotFoundError. */
function reason(error) {
  const found = (error.details ?? []).map((one) => one.reason ?? one.debug?.reason).find(Boolean);
  return found?.toLowerCase().replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase());
}

const NUMBERS = new Set(["start", "end", "total_chars", "relation_count", "source_count", "member_count", "documents", "distinct", "integer", "page", "row", "counts", "communities_by_level", "input_tokens", "output_tokens", "records", "parts", "part_tokens", "calls", "points", "unhelpful", "failed", "uncited", "dropped", "left_out", "unreported"]);
const MAPS = new Set(["counts", "communities_by_level", "context_refs", "timings_ms", "metadata"]); // their keys stay as they are
const ENUMS = /^(?:MODE|LEVEL)_/;

/** The value of a metadata field. */
function scalar(value) {
  if (value.list) return (value.list.values ?? []).map(scalar);
  return value.text ?? value.number ?? value.flag ?? (value.integer === undefined ? null : Number(value.integer));
}

/** A message in JSON with names as the proto has them, 64-bit numbers as numbers, and enumerations and values as texts. */
function plain(value, name = "") {
  if (Array.isArray(value)) return value.map((one) => plain(one, name));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => {
      if (name === "metadata") return [key, scalar(one)];
      if (MAPS.has(name)) return [key, plain(one, name)];
      const known = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      return [known, plain(one, known)];
    }));
  }
  if (typeof value !== "string") return value;
  if (name === "mode" || name === "modes" || name === "level") return value.replace(ENUMS, "").toLowerCase().replaceAll("_", "-");
  return NUMBERS.has(name) && /^-?\d+$/.test(value) ? Number(value) : value;
}

/** A unary call of the service, by the name of its method; index and filters are added. */
export async function call(method, request, signal) {
  const response = await post(method, scoped(request), signal);
  if (!response.ok) throw await refusal(response);
  return plain(await response.json());
}

/** Names of the indexes that this caller may ask; none where the service has only one. */
export async function indexes() {
  try {
    const response = await post("ListIndexes", { page_size: 1000 });
    return response.ok ? (plain(await response.json()).indexes ?? []) : [];
  } catch {
    return [];
  }
}

/** {info: what the index holds, modes: those that the service accepts}. */
export async function describe() {
  const response = await post("DescribeIndex", scoped().index ? { index: scoped().index } : {});
  if (!response.ok) throw await refusal(response);
  return plain(await response.json());
}

/** The messages of a stream of server-sent events. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Trouble("Broken", "the connection was lost in the middle of the reply");
    });
    if (done) return;
    const found = (held + value).split("\n\n");
    held = found.pop();
    for (const event of found) {
      const data = JSON.parse(event.slice(event.indexOf("data: ") + 6));
      if (event.startsWith("event: error")) throw trouble(data);
      yield plain(data);
    }
  }
}

/** Yields {type: "retrieval", level, retrieval}, {type: "text", text} and {type: "answer", answer} as they come. */
export async function* ask({ answer, timeout_s, index, mode, ...fields }, signal) {
  const query = { ...fields, ...(mode && { mode: `MODE_${mode.toUpperCase().replaceAll("-", "_")}` }) };
  const limit = timeout_s ? { "Connect-Timeout-Ms": String(Math.ceil(timeout_s * 1000)) } : {};
  const response = await post(answer ? "Answer" : "RetrieveStream", { query, omit_context: true, ...(index && { index }) }, signal, limit);
  if (!response.ok) throw await refusal(response);
  let whole = false;
  for await (const message of events(response)) {
    const found = message.retrieval ?? message.answer?.retrieval; // the last one where it differs from the first
    if (found) yield { type: "retrieval", level: message.level ?? "done", retrieval: found };
    if (message.text !== undefined) yield { type: "text", text: message.text };
    if (message.answer) yield { type: "answer", answer: message.answer };
    whole = message.answer || (message.level === "done" && !answer);
  }
  if (!whole) throw new Trouble("Broken", "the reply ended before it was complete");
}
