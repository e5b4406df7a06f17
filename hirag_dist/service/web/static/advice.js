// What an error means to the person who asked, and what to do about it.

import { h } from "./dom.js";

const ADVICE = {
  Unauthenticated: ["The service does not know this token", "Type the token that you were given under Access, at the top. It may also have expired: then ask for a new one."],
  PermissionDenied: ["You may not do this", "Ask the operator of the service what your token allows."],
  InvalidQuery: ["The question cannot be asked like this", "Change what the message names, and ask again."],
  IndexNotFound: ["There is no such index", "Choose another one at the top; your token may not know this one."],
  NotFound: ["There is nothing of that name", "Names are those of the index; the message lists the closest. What your token may not see is not found either."],
  Unsupported: ["This service does not offer it", "It needs the HTTP API of the service, in the same version as the page."],
  Overloaded: ["Too many questions at the moment", "Ask again in a moment; nothing is wrong with your question."],
  QuotaExceeded: ["You have asked as much as your token allows", "Wait, then ask again; or ask the operator for more."],
  RateLimited: ["The language model's endpoint asks for a pause", "What was found is shown. Wait, then ask again, or without an answer."],
  SlowReader: ["The reply could not be delivered", "The connection here was too slow for it. Ask again, or for less."],
  NotReady: ["The service is starting or stopping", "Ask again in a few seconds."],
  DeadlinePassed: ["There was not enough time", "Allow more under Options, or ask for less: fewer entities, or no answer."],
  RequestTooLarge: ["The result is too large to send", "Ask for less under Options."],
  ModelUnavailable: ["The language model does not answer", "What was found is shown. Ask again later, or without an answer."],
  EndpointUnreachable: ["The language model is out of reach", "What was found is shown. Ask without an answer, or tell the operator: its server does not run, or its address is wrong."],
  UnusableReply: ["The language model wrote no usable answer", "What was found is shown. Ask again, or without an answer."],
  ContextLengthExceeded: ["The question is too long for the language model", "What was found is shown. Ask a shorter question, or without an answer."],
  ConfigError: ["The service is not set up for this question", "Tell the operator what the message says."],
  TimedOut: ["The language model took too long", "What was found is shown. Ask again later, or without an answer."],
  RequestRejected: ["The language model refused the request", "What was found is shown. Ask without an answer, or tell the operator."],
  ServiceError: ["The service cannot be reached", "Ask again in a moment. If that does not help, tell the operator: the page runs, the service behind it does not answer."],
  BackendUnavailable: ["A part of the service is out of reach", "Tell the operator what the message says."],
  SnapshotNotFound: ["Nothing is published yet", "The operator has to build an index first: hirag-dist index."],
  Unreachable: ["The server of this page does not answer", "Check your connection, or ask the operator whether it is running."],
  Broken: ["The reply broke off", "What came is shown. Ask again."],
  Forbidden: ["The request was refused", "Open the page under the address that its operator gave you."],
};

function wait(seconds) {
  if (seconds < 90) return `in ${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `in ${Math.ceil(seconds / 60)} minutes` : `in ${Math.ceil(seconds / 3600)} hours`;
}

/** Fills the box that tells of a trouble. */
export function tell(box, trouble, again) {
  const [title, advice] = ADVICE[trouble.kind] ?? ["Something went wrong", "Ask again; if it happens again, tell the operator what the message says."];
  const when = trouble.retryAfterS ? ` Try again ${wait(trouble.retryAfterS)}.` : "";
  box.replaceChildren(
    h("h2", {}, title),
    h("p", {}, advice + when),
    h("p", { class: "soft", dir: "auto" }, trouble.message),
    ...(again ? [h("button", { type: "button", onclick: again }, "Ask again")] : []),
  );
  box.hidden = false;
}
