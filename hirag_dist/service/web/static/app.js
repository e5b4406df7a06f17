// The page: its views, what is asked, what comes, and who asks.

import { tell } from "./advice.js";
import { ask, describe, indexes, Trouble } from "./api.js";
import { clearFilters, drawFilters, fields, request, setLabels, take } from "./asking.js";
import { Conversation, standAlone } from "./conversation.js";
import { answerText, copy } from "./copy.js";
import { by, h, many } from "./dom.js";
import { Explorer } from "./explore.js";
import { offerModes } from "./modes.js";
import { Reader } from "./reader.js";
import { beginResult, drawCited, drawResult } from "./result.js";
import { go, keepToken, link, placed, scope, token } from "./session.js";
import { drawTimings } from "./timings.js";

const VIEWS = ["ask", "explore"];
let running = null; // the control of the question in progress
let view = "ask";
let last = null; // the turn that is shown

const say = (text) => by("status").replaceChildren(text);
let since = 0; // when the question in progress was asked
let doing = "";
let clock = 0;

/** Says what is being done, and for how long, until the next call; nothing where the text is empty. */
function progress(text) {
  if (!text) clearInterval(clock);
  else if (!doing) {
    since = performance.now();
    clock = setInterval(tick, 1000);
  }
  doing = text;
  tick();
}

function tick() {
  const seconds = Math.floor((performance.now() - since) / 1000);
  by("progress").textContent = `${doing}${seconds ? ` ${seconds} s` : ""}`;
  by("progress").hidden = !doing;
}

const conversation = new Conversation(by("turns"), show);
const explorer = new Explorer({
  suggestions: () => (last?.retrieval ? [...last.retrieval.local, ...last.retrieval.key_entities].filter((one, at, all) => all.findIndex((other) => other.entity_id === one.entity_id) === at) : []),
  ask: (text) => {
    open("ask", { step: true });
    by("question").value = text;
    by("question").focus();
  },
  failed: (trouble) => failed(trouble),
});
new Reader(by("reader"));

/** Shows a view. */
function open(name, { step = false } = {}) {
  view = VIEWS.includes(name) ? name : "ask";
  document.body.dataset.view = view;
  for (const one of VIEWS) by(`${one}-view`).hidden = one !== view;
  by("ask").hidden = view === "explore";
  for (const one of by("views").querySelectorAll("a")) {
    if (one.dataset.view === view) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  if (step) go({ view }, { step });
}

/** Shows what the address names. */
function follow() {
  const wanted = placed();
  const other = (wanted.index ?? "") !== scope.index;
  take(last && wanted.q === last.fields.q ? { ...wanted, q: "" } : wanted); // what is shown is not asked again
  open(wanted.view ?? "ask");
  if (view === "explore") explorer.open(wanted);
  if (other) look();
}

async function run() {
  const typed = by("question").value;
  if (!typed.trim()) return;
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const followed = !by("follow-choice").hidden && by("follow").checked;
  const text = followed ? standAlone(conversation.turns, typed) : typed;
  const turn = { typed, text, asked: request(text, by("mode").value), retrieval: null, answer: null, waited: 0, fields: fields("ask", text) };
  const started = performance.now();
  go(turn.fields);
  const shown = beginResult(turn.asked.answer);
  drawAsked(turn);
  last = turn;
  busy(true);
  say("Asking …");
  progress("");
  progress("Looking in the index …");
  try {
    for await (const message of ask(turn.asked, mine.signal)) {
      turn.waited = performance.now() - started;
      if (message.type === "retrieval") {
        turn.retrieval = message.retrieval;
        drawResult(turn.retrieval, message.level, turn.waited, shown);
        const read = turn.retrieval.map_work?.calls !== 0; // else it has yet to be read
        if (read) shown?.found(turn.retrieval);
        progress(!read ? "The model is reading the whole index …" : shown ? "The model is reading what was found …" : "Looking further …");
      } else if (message.type === "text") {
        progress("Writing …");
        shown.add(message.text);
      } else {
        turn.answer = message.answer;
        finish(turn, shown);
        keep(turn); // at once: who asks on before the stream has ended asks within this conversation
      }
    }
    say(turn.asked.answer ? "The answer is complete." : "The result is complete.");
    if (!turn.answer) keep(turn);
  } catch (error) {
    if (running !== mine) return; // another question has taken its place
    shown?.breakOff();
    if (error.name === "AbortError") say("Stopped.");
    else failed(error);
  } finally {
    if (running === mine) {
      running = null;
      busy(false);
    }
  }
}

function finish(turn, shown) {
  shown.copied = () => answerText(turn.typed, turn.answer, turn.retrieval);
  shown.finish(turn.answer);
  drawCited(turn.retrieval, shown);
  drawTimings(by("timings"), turn.retrieval, turn.waited);
}

/** Adds a complete turn to the conversation, and clears the field for the next question. */
function keep(turn) {
  conversation.add(turn);
  by("follow-choice").hidden = false;
  if (by("question").value === turn.typed) by("question").value = "";
  by("question").placeholder = "Ask a follow-up, or something else";
}

/** Shows an earlier turn again, as it was. */
function show(turn) {
  running?.abort();
  running = null;
  busy(false);
  last = turn;
  const shown = beginResult(turn.asked.answer);
  drawResult(turn.retrieval, "done", turn.waited, shown);
  shown?.found(turn.retrieval);
  if (turn.answer) finish(turn, shown);
  drawAsked(turn);
  conversation.draw(turn);
  go(turn.fields);
  by("asked").scrollIntoView({ block: "start" });
  by("asked").querySelector("h2").focus({ preventScroll: true });
}

/** What was asked, above its result; of a follow-up also the stand-alone question that the service was sent. */
function drawAsked(turn) {
  const alone = turn.text === turn.typed ? null : h("details", { class: "alone", open: true }, h("summary", {}, "Asked as a stand-alone question"), h("q", { dir: "auto" }, turn.text));
  const sharing = (event) => copy(event.currentTarget, link(turn.fields), say);
  by("asked").replaceChildren(
    h("h2", { dir: "auto", tabindex: "-1" }, turn.typed),
    alone ?? "",
    h("p", { class: "acts" }, h("button", { type: "button", class: "act", onclick: sharing }, "Copy link"), h("button", { type: "button", class: "act", onclick: begin }, "New conversation")),
  );
  by("asked").hidden = false;
}

/** Forgets the conversation and its results. */
function begin() {
  running?.abort();
  conversation.clear();
  last = null;
  for (const id of ["asked", "result", "follow-choice", "trouble"]) by(id).hidden = true;
  by("welcome").hidden = false;
  by("question").value = "";
  by("question").placeholder = "What do you want to know?";
  go({ view: "ask" });
  by("question").focus();
}

function busy(is) {
  by("stop").hidden = !is;
  if (!is) progress("");
  document.body.classList.toggle("busy", is);
}

function failed(error) {
  const trouble = error instanceof Trouble ? error : new Trouble("Page", `${error.name}: ${error.message}`);
  if (!(error instanceof Trouble)) console.error(error);
  const final = view === "explore" || ["Unauthenticated", "InvalidQuery"].includes(trouble.kind);
  tell(by("trouble"), trouble, final ? null : run);
  say("");
  by("welcome").hidden = true;
  if (trouble.kind === "Unauthenticated") askForToken(token() ? "refused" : "needed");
}

function askForToken(state) {
  by("access-state").textContent = state;
  by("access-state").className = "chip bad";
  by("access").open = true;
  by("token").focus();
}

/** Says in the head what is served, and whether this tab may see it; offers its indexes and filters. */
async function look() {
  const chip = by("access-state");
  chip.className = "chip";
  chip.textContent = token() ? "token set" : "";
  drawIndexes(await indexes());
  try {
    const { info, modes } = await describe();
    offerModes(by("mode"), modes ?? []);
    const layers = info.layers.length > 1 ? `${info.layers.length} layers` : "one layer";
    const facts = [many(info.counts.documents ?? 0, "document"), many(info.counts.entities ?? 0, "entity", "entities"), many(info.counts.relations ?? 0, "relation"), layers, many(info.counts.communities ?? 0, "community", "communities")];
    by("index-facts").textContent = `${facts.join(" · ")}${info.complete ? "" : " · incomplete: documents or texts are missing"}`;
    by("index-facts").title = `Snapshot ${info.snapshot_id}, published ${info.created_at}`;
    drawStart(info);
    if (token()) chip.className = "chip good";
    drawFilters(info);
    by("trouble").hidden = true;
  } catch (error) {
    by("index-facts").textContent = "The description of the index could not be loaded.";
    if (error.kind === "Unauthenticated" && !token()) {
      by("index-facts").textContent = "This service requires a token.";
      askForToken("needed");
    } else failed(error);
  }
}

/** Says what the index is about: questions that it can be asked, and some of its documents. */
function drawStart(info) {
  const [first, second, third] = info.main_entities;
  const questions = [first && `What is known about ${first}?`, second && `How are ${first} and ${second} connected?`, third && `What do the documents say about ${third}?`].filter(Boolean);
  const documents = info.counts.documents ?? 0;
  by("holds").textContent = info.main_entities.length ? `The documents are about ${info.main_entities.join(", ")}, and more.` : "";
  by("starters").replaceChildren(...questions.map((text) => h("button", { type: "button", class: "chip-link", dir: "auto", onclick: () => {
    by("question").value = text;
    run();
  } }, text)));
  by("titles").hidden = !info.example_titles.length;
  by("titles").querySelector("summary").textContent = info.example_titles.length < documents ? "Some of the documents" : "The documents";
  by("titles").querySelector("ul").replaceChildren(...info.example_titles.map((title) => h("li", { dir: "auto" }, title)));
}

/** Offers the indexes of a service that has several; where it has no default one, the first is chosen. */
function drawIndexes(found) {
  if (found.length > 1 && !scope.index && !found.some((one) => one.default)) scope.index = found[0].name;
  by("index-choice").hidden = found.length < 2;
  const title = found.find((one) => (scope.index ? one.name === scope.index : one.default || found.length === 1))?.title;
  by("title").textContent = document.title = title || "Ask the index";
  const chosen = scope.index || found.find((one) => one.default)?.name || "";
  by("index").replaceChildren(...found.map((one) => h("option", { value: one.name, selected: one.name === chosen }, one.title || one.name)));
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
by("labels").addEventListener("input", (event) => setLabels(event.currentTarget.value));
by("filter-clear").addEventListener("click", clearFilters);
by("index").addEventListener("change", (event) => {
  scope.index = event.currentTarget.value;
  clearFilters();
  explorer.clear();
  begin();
  go({ view });
  look();
});
by("views").addEventListener("click", (event) => {
  const wanted = event.target.dataset?.view;
  if (!wanted || event.ctrlKey || event.metaKey || event.shiftKey) return; // those open it in another tab
  event.preventDefault();
  open(wanted, { step: true });
  if (view === "explore") explorer.open({});
});
by("access-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = by("token").value.trim();
  if (!given) return;
  keepToken(given);
  by("token").value = "";
  by("access").open = false;
  look();
});
by("forget").addEventListener("click", () => {
  keepToken("");
  by("token").value = "";
  look();
});
addEventListener("popstate", follow);
take(placed());
open(placed().view ?? "ask");
if (view === "explore") explorer.open(placed());
if (view === "ask") by("question").focus();
look();
