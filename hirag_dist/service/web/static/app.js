// The page: what is asked, what comes, and who asks.

import { ask, describe, Trouble } from "./api.js";
import { AnswerView } from "./answer.js";
import { drawBridge } from "./bridge.js";
import { by, count, h, many } from "./dom.js";
import { drawClaims, drawGlobal, drawLocal, drawSources } from "./levels.js";
import { tell } from "./advice.js";
import { drawTimings } from "./timings.js";

const TOKEN = "hirag-token"; // of this tab's session storage
const SEARCHED = { hirag: ["local", "global", "bridge"], nobridge: ["local", "global"], local: ["local"], global: ["global"], bridge: ["bridge"], flat: ["local"], naive: [], "graphrag-local": ["local", "global"], "graphrag-global": ["global"], "text-map-reduce": [] };
let running = null;

function token() {
  return sessionStorage.getItem(TOKEN) ?? "";
}

function whole(id) {
  const value = by(id).value.trim();
  return value === "" ? {} : { [id.replace("-", "_")]: Number(value) };
}

function question() {
  const labels = by("labels").value.split(",").map((label) => label.trim()).filter(Boolean);
  return {
    question: by("question").value,
    answer: by("want-answer").checked,
    ...(by("mode").value && { mode: by("mode").value }),
    ...whole("top-n"),
    ...whole("top-m"),
    ...whole("top-c"),
    ...(labels.length && { labels }),
    ...(by("time").value && { timeout_s: Number(by("time").value) }),
  };
}

/** Draws what was found so far; `level` is the last that is there, "done" when all are. */
function draw(retrieval, level, waited) {
  const wanted = SEARCHED[retrieval.mode] ?? [];
  const order = ["local", "global", "bridge", "sources", "done"];
  const reached = (name) => order.indexOf(level) >= order.indexOf(name);
  by("partial").hidden = !retrieval.partial.length;
  if (retrieval.partial.length) {
    by("partial").replaceChildren(h("b", {}, "Not everything: "), `the time allowed cut off ${retrieval.partial.join(", ")}. What was found until then is shown. Allow more under Options for the rest.`);
  }
  if (retrieval.note) {
    by("partial").hidden = false;
    by("partial").replaceChildren(h("b", {}, "Nothing was retrieved: "), `${retrieval.note}.`);
  }
  const work = retrieval.map_work;
  if (work && !work.calls) by("status").textContent = `Reading ${many(work.records, "record")} in ${many(work.parts, "part")}: a call to the model each …`;
  if (work?.failed || work?.unreported) {
    const gaps = [
      work.failed && `there is no usable reply for ${many(work.failed, "part")} of the corpus`,
      work.unreported && `${many(work.unreported, "community has", "communities have")} no report`,
    ];
    by("partial").hidden = false;
    by("partial").replaceChildren(h("b", {}, "Not everything: "), `${gaps.filter(Boolean).join(", and ")}; what is there is missing.`);
  }
  drawLocal(by("local"), retrieval, wanted.includes("local"));
  if (reached("global")) drawGlobal(by("global"), retrieval, wanted.includes("global"));
  if (reached("bridge")) drawBridge(by("bridge"), retrieval, wanted.includes("bridge"));
  drawClaims(by("claims"), retrieval);
  drawSources(by("sources"), retrieval, !reached("sources"));
  if (level === "done") drawTimings(by("timings"), retrieval, waited);
  const parts = [["answer", "Answer", null], ["sources", "Sources", retrieval.sources.length], ["bridge", "Bridge", retrieval.key_entities.length], ["local", "Local", retrieval.local.length], ["global", "Global", retrieval.communities.length], ["claims", "Claims", retrieval.claims.length]];
  by("jump").replaceChildren(...parts.filter(([id]) => !by(id).hidden).map(([id, label, size]) => h("button", { type: "button", onclick: () => go(id) }, label, size === null ? null : h("span", { class: "number" }, count(size)))));
  by("result").hidden = false;
}

function go(id) {
  by(id).scrollIntoView({ block: "start" });
  by(id).focus({ preventScroll: true });
}

function clear(asked) {
  by("trouble").hidden = true;
  by("welcome").hidden = true;
  by("partial").hidden = true;
  by("result").hidden = true;
  by("answer").hidden = !asked.answer;
  by("result").classList.toggle("unanswered", !asked.answer);
  for (const id of ["local", "global", "bridge", "claims", "sources", "timings", "answer"]) by(id).replaceChildren();
}

async function run() {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const asked = question();
  const started = performance.now();
  const view = new AnswerView(by("answer"));
  let last = null;
  clear(asked);
  busy(true);
  by("status").textContent = "Asking …";
  if (asked.answer) view.begin();
  try {
    for await (const message of ask(asked, token(), mine.signal)) {
      if (message.type === "retrieval") {
        last = message.retrieval;
        draw(last, message.level, performance.now() - started);
        if (last.map_work?.calls !== 0) view.found(last); // else it has yet to be read
      } else if (message.type === "text") view.add(message.text);
      else {
        view.finish(message.answer);
        drawTimings(by("timings"), last, performance.now() - started);
      }
    }
    by("status").textContent = asked.answer ? "The answer is complete." : "The result is complete.";
  } catch (error) {
    if (running !== mine) return; // another question has taken its place
    if (asked.answer) view.breakOff();
    if (error.name === "AbortError") by("status").textContent = "Stopped.";
    else failed(error);
  } finally {
    if (running === mine) {
      running = null;
      busy(false);
    }
  }
}

function busy(is) {
  by("stop").hidden = !is;
  by("go").textContent = is ? "Ask anew" : "Ask";
  document.body.classList.toggle("busy", is);
}

function failed(error) {
  const trouble = error instanceof Trouble ? error : new Trouble("Page", `${error.name}: ${error.message}`);
  if (!(error instanceof Trouble)) console.error(error);
  tell(by("trouble"), trouble, trouble.kind === "Unauthenticated" || trouble.kind === "InvalidQuery" ? null : run);
  by("status").textContent = "";
  by("welcome").hidden = true;
  if (trouble.kind === "Unauthenticated") askForToken(token() ? "refused" : "needed");
}

function askForToken(state) {
  by("access-state").textContent = state;
  by("access-state").className = "chip bad";
  by("access").open = true;
  by("token").focus();
}

/** Says in the head what is served, and whether this tab may see it. */
async function look() {
  const chip = by("access-state");
  chip.className = "chip";
  chip.textContent = token() ? "token set" : "";
  try {
    const info = await describe(token());
    const layers = info.layers.length > 1 ? `${info.layers.length} layers` : "one layer";
    const facts = [many(info.counts.documents ?? 0, "document"), many(info.counts.entities ?? 0, "entity", "entities"), many(info.counts.relations ?? 0, "relation"), layers, many(info.counts.communities ?? 0, "community", "communities")];
    by("index-facts").textContent = `${facts.join(" · ")}${info.complete ? "" : " · incomplete: parts could not be built"}`;
    by("index-facts").title = `Snapshot ${info.snapshot_id}, published ${info.created_at}`;
    if (token()) chip.className = "chip good";
    by("trouble").hidden = true;
  } catch (error) {
    by("index-facts").textContent = "The description of the index could not be loaded.";
    if (error.kind === "Unauthenticated" && !token()) {
      by("index-facts").textContent = "This service requires a token.";
      askForToken("needed");
    } else failed(error);
  }
}

by("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
by("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // Enter ends a composed character
  event.preventDefault();
  by("ask").requestSubmit();
});
by("stop").addEventListener("click", () => running?.abort());
by("access-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = by("token").value.trim();
  if (!given) return;
  sessionStorage.setItem(TOKEN, given);
  by("token").value = "";
  by("access").open = false;
  look();
});
by("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  by("token").value = "";
  look();
});
look();
