// The result of a question: answer, levels, bridge and times, drawn as they come.

import { AnswerView } from "./answer.js";
import { drawBridge } from "./bridge.js";
import { by, count, h, many } from "./dom.js";
import { drawClaims, drawGlobal, drawLocal, drawSources } from "./levels.js";
import { SEARCHED } from "./modes.js";
import { drawTimings } from "./timings.js";

const ORDER = ["local", "global", "bridge", "sources", "done"];
const PARTS = ["local", "global", "bridge", "claims", "sources", "timings", "answer"];

/** Empties the result and begins another one; returns the view of its answer, null where none is wanted. */
export function beginResult(answered) {
  for (const id of ["trouble", "welcome", "partial", "result"]) by(id).hidden = true;
  by("answer").hidden = !answered;
  by("how").open = !answered;
  for (const id of PARTS) by(id).replaceChildren();
  if (!answered) return null;
  const view = new AnswerView(by("answer"));
  view.begin();
  return view;
}

/** Draws what was found so far; `level` is the last that is there, "done" when all are. */
export function drawResult(retrieval, level, waited, view) {
  const wanted = SEARCHED[retrieval.mode] ?? [];
  const reached = (name) => ORDER.indexOf(level) >= ORDER.indexOf(name);
  drawGaps(retrieval);
  drawLocal(by("local"), retrieval, wanted.includes("local"));
  if (reached("global")) drawGlobal(by("global"), retrieval, wanted.includes("global"));
  if (reached("bridge")) drawBridge(by("bridge"), retrieval, wanted.includes("bridge"));
  drawClaims(by("claims"), retrieval);
  drawSources(by("sources"), retrieval, !reached("sources"), (source) => view?.about(source.chunk_id) || null);
  if (level === "done") drawTimings(by("timings"), retrieval, waited);
  const parts = [["answer", "Answer", null], ["sources", "Sources", retrieval.sources.length], ["local", "Entities", retrieval.local.length], ["global", "Reports", retrieval.communities.length], ["bridge", "Connections", retrieval.key_entities.length], ["claims", "Claims", retrieval.claims.length]];
  by("jump").replaceChildren(...parts.filter(([id]) => !by(id).hidden).map(([id, label, size]) => h("button", { type: "button", onclick: () => jump(id) }, label, size === null ? null : h("span", { class: "number" }, count(size)))));
  by("result").hidden = false;
}

/** Puts the passages that the answer cites first. */
export function drawCited(retrieval, view) {
  const cited = view.citations.filter((one) => one.kind === "chunk").map((one) => one.id);
  drawSources(by("sources"), retrieval, false, (source) => view.about(source.chunk_id) || null, cited);
}

function jump(id) {
  if (by("how").contains(by(id))) by("how").open = true;
  by(id).scrollIntoView({ block: "start" });
  by(id).focus({ preventScroll: true });
}

/** Says what is missing, if anything is. */
function drawGaps(retrieval) {
  const say = (title, text) => {
    by("partial").hidden = false;
    by("partial").replaceChildren(h("b", {}, title), text);
  };
  by("partial").hidden = true;
  if (retrieval.partial.length) say("Not everything: ", `the time allowed cut off ${retrieval.partial.join(", ")}. What was found until then is shown. Allow more under Options for the rest.`);
  if (retrieval.note) say("Nothing was retrieved: ", `${retrieval.note}.`);
  const work = retrieval.map_work;
  if (work && !work.calls) by("status").textContent = `Reading ${many(work.records, "record")} in ${many(work.parts, "part")}: a call to the model each, and one for the answer …`;
  if (work?.failed || work?.unreported) {
    const gaps = [
      work.failed && `there is no usable reply for ${many(work.failed, "part")} of the corpus`,
      work.unreported && `${many(work.unreported, "community has", "communities have")} no report`,
    ];
    say("Not everything: ", `${gaps.filter(Boolean).join(", and ")}; what is there is missing.`);
  }
}
