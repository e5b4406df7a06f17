// The page's own server: questions as JSON, replies as one JSON object a line.

/** What the server, or the way to it, said instead of a reply. */
export class Trouble extends Error {
  constructor(kind, message, retryAfterS = null) {
    super(message);
    this.kind = kind;
    this.retryAfterS = retryAfterS;
  }
}

function post(path, body, token, signal) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { method: "POST", headers, body: JSON.stringify(body), signal, credentials: "same-origin", cache: "no-store" };
  return fetch(path, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Trouble("Unreachable", "the page's server does not answer");
  });
}

async function refusal(response) {
  try {
    const { error } = await response.json();
    return new Trouble(error.kind, error.message, error.retry_after_s ?? null);
  } catch {
    return new Trouble("Unknown", `the server said ${response.status} ${response.statusText}`);
  }
}

/** What the index holds. */
export async function describe(token) {
  const response = await post("/api/describe", {}, token);
  if (!response.ok) throw await refusal(response);
  return (await response.json()).info;
}

/** Yields {type: "retrieval", level, retrieval}, {type: "text", text} and {type: "answer", answer} as they come. */
export async function* ask(question, token, signal) {
  const response = await post("/api/ask", question, token, signal);
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
