// Upload of documents: files, the plan, the update with its progress, the result.

import { upload, uploadFile } from "./api.js";
import { by, count, h, many } from "./dom.js";

const POLL_MS = 1000;
const RUNS = ["planning", "running"];

/** "$1.20", "unknown" where a price is missing. */
function dollars(value) {
  if (value === null || value === undefined) return "unknown";
  return value > 0 && value < 0.01 ? "under $0.01" : `$${value.toFixed(2)}`;
}

function bytes(value) {
  const units = ["bytes", "KB", "MB", "GB"];
  const at = Math.min(Math.floor(Math.log(Math.max(value, 1)) / Math.log(1024)), 3);
  return at ? `${(value / 1024 ** at).toFixed(1)} ${units[at]}` : `${value} bytes`;
}

export class Uploads {
  /** @param changed is called when the index has changed. */
  constructor(changed) {
    this.changed = changed;
    this.served = ""; // the snapshot that questions are asked of
    this.state = null;
    this.timer = 0;
    this.sending = "";
    this.limits = null;
    this.asked = 0; // requests so far, and the number of the one whose reply is shown: an older reply is not
    this.shown = 0;
    const drop = by("drop");
    by("upload-files").addEventListener("change", (event) => {
      this.send([...event.currentTarget.files]);
      event.currentTarget.value = "";
    });
    for (const name of ["dragenter", "dragover"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.add("over");
      });
    }
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.send([...event.dataTransfer.files]);
    });
  }

  /** Shows the state of the upload, which other operators may have begun. */
  open() {
    return this.step("state");
  }

  async send(files) {
    const large = files.find((file) => this.limits && file.size > Math.min(this.limits.bytes, this.limits.file_bytes));
    if (large) { // it would be refused while it is being sent, and browsers show no reply then
      this.fail(new Error(`${large.name} has ${bytes(large.size)}, more than an upload may have`));
      return;
    }
    by("upload-error").hidden = true;
    for (const [at, file] of files.entries()) {
      this.sending = `Sending ${file.name} (${at + 1} of ${files.length}) …`;
      this.draw();
      try {
        await this.latest(uploadFile(file));
      } catch (error) {
        this.sending = "";
        this.fail(error);
        this.draw();
        return;
      }
    }
    this.sending = "";
    if (files.length) await this.step("plan");
  }

  async step(name, body = {}) {
    clearTimeout(this.timer);
    try {
      await this.latest(upload(name, body));
    } catch (error) {
      if (name !== "state") await this.step("state");
      this.fail(error);
    }
  }

  /** Shows the state that a request replies, unless that of a later request is shown. */
  async latest(request) {
    const number = ++this.asked;
    const state = await request;
    if (state.limits) this.limit(state);
    if (number < this.shown) return;
    this.shown = number;
    this.take(state);
  }

  limit({ limits, types }) {
    this.limits = limits;
    by("upload-limits").textContent = `At most ${bytes(limits.bytes)} in ${count(limits.files)} files: ${types}`;
    by("upload-files").setAttribute("aria-describedby", "upload-limits");
  }

  take(state) {
    const before = this.state?.state;
    this.state = state;
    by("upload-error").hidden = !state.error;
    if (state.error) by("upload-error").textContent = state.error;
    by("drop").hidden = RUNS.includes(state.state);
    this.draw();
    if (RUNS.includes(state.state)) this.timer = setTimeout(() => this.step("state"), POLL_MS);
    else if (state.state === "done") this.follow(before !== "done");
  }

  /** Waits until the service answers from the new snapshot. */
  follow(first) {
    const { result } = this.state;
    if (!result || this.served === result.snapshot || !(first || this.waiting)) return;
    this.waiting = true;
    this.timer = setTimeout(async () => {
      await this.changed();
      if (this.state.result !== result) return;
      this.waiting = this.served !== result.snapshot;
      this.draw();
      if (this.waiting) this.follow(false);
    }, POLL_MS);
  }

  fail(error) {
    by("upload-error").textContent = error.message;
    by("upload-error").hidden = false;
  }

  draw() {
    const { state, files = [], plan, progress, result } = this.state ?? { state: "empty" };
    const button = (text, step, body, kind) => h("button", { type: "button", class: kind, onclick: () => this.step(step, typeof body === "function" ? body() : body) }, text);
    const parts = [];
    if (this.sending) parts.push(h("p", {}, this.sending));
    if (files.length && state !== "done") parts.push(h("details", { open: files.length < 8 }, h("summary", {}, `${many(files.length, "file")}, ${bytes(files.reduce((sum, one) => sum + one.bytes, 0))}`), h("ul", { class: "files" }, files.map((one) => h("li", { dir: "auto" }, one.name, " ", h("small", {}, bytes(one.bytes)))))));
    if (state === "planning") parts.push(h("p", {}, "Estimating the cost; no model is called …"), button("Cancel", "cancel"));
    if (plan && state === "planned") parts.push(...this.drawPlan(plan, button));
    if (state === "running") parts.push(...drawProgress(progress, plan?.calls ?? 0), button("Cancel", "cancel"));
    if (state === "cancelled" || state === "failed") parts.push(h("p", {}, state === "cancelled" ? "Cancelled. Replies that were paid are kept, and are not paid again." : "It failed. Replies that were paid are kept, and are not paid again."));
    if (["collecting", "cancelled", "failed"].includes(state) && !this.sending) parts.push(h("div", { class: "row" }, button(state === "collecting" ? "Estimate the cost" : "Plan again", "plan", {}, "primary"), button("Discard these files", "discard")));
    if (state === "done") parts.push(...this.drawResult(result, button));
    by("upload-state").replaceChildren(...parts);
  }

  drawPlan(plan, button) {
    const { added, changed } = plan.documents;
    const unread = plan.unreadable.length ? h("details", { open: true }, h("summary", {}, `${many(plan.unreadable_count, "file")} cannot be read`), h("ul", {}, plan.unreadable.map(([name, why]) => h("li", {}, `${name}: ${why}`)))) : null;
    const discard = button("Discard these files", "discard");
    if (plan.refused) return [h("p", { class: "card warn" }, `This index cannot be updated: ${plan.refused}`), discard];
    if (!added && !changed) return [h("p", {}, "The index has these documents already."), unread, discard].filter(Boolean);
    const limit = h("input", { type: "number", min: "0", step: "0.01", id: "upload-usd", placeholder: "no limit", inputmode: "decimal" });
    const start = button("Add to the index", "start", () => ({ plan_id: this.state.plan_id, ...(limit.value && { max_usd: Number(limit.value) }) }), "primary");
    const cells = [...plan.stages, { stage: "in all", endpoint: "", calls: plan.calls, input_tokens: plan.input_tokens, output_tokens: plan.output_tokens, cost_usd: plan.cost_usd }];
    const head = ["stage", "endpoint", "calls", "tokens in", "tokens out", "cost"];
    return [
      h("h3", {}, "Plan"),
      h("p", {}, `${many(added, "document")} added, ${count(changed)} replaced; ${many(plan.documents_after, "document")} afterwards. ${many(plan.chunks, "chunk")} to extract, ${many(plan.tokens, "token")}.`),
      h("div", { class: "tables" }, h("table", { class: "plan" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, cells.map((one) => h("tr", {}, h("th", { scope: "row" }, one.stage), [one.endpoint, count(one.calls), count(one.input_tokens), count(one.output_tokens), dollars(one.cost_usd)].map((shown, at) => h("td", { "data-name": shown && head[at + 1] }, shown))))))),
      h("p", { class: "soft" }, "An estimate, about a factor of two either way; replies that the index holds already cost nothing again."),
      ...(unread ? [unread] : []),
      h("div", { class: "row" }, h("label", { class: "check" }, "Stop before more than $ ", limit), start, discard),
    ];
  }

  drawResult(result, button) {
    const documents = result.update?.documents ?? {};
    const said = result.up_to_date ? "The index has these documents already." : `${many(documents.added ?? 0, "document")} added, ${count(documents.changed ?? 0)} replaced, in ${result.seconds.toFixed(0)} s.`;
    const spent = `${many(result.this_run.calls, "call")}, ${many(result.this_run.tokens, "token")}, ${dollars(result.this_run.usd)}`;
    const letters = result.dead_letters ? h("p", { class: "card warn" }, `Incomplete: ${many(result.dead_letters, "dead letter")}. On the machine of the service, hirag-dist status shows them and hirag-dist retry asks again.`) : null;
    const live = this.served === result.snapshot ? "Questions are answered from the new snapshot." : "The service is opening the new snapshot …";
    return [h("h3", {}, "Result"), h("p", { id: "upload-result" }, said), h("p", {}, `This run: ${spent}.`), letters, h("p", { id: "upload-live" }, live), button("Add more documents", "discard")].filter(Boolean);
  }
}

/** The stage that runs, and the calls so far of those that were planned. */
function drawProgress(progress, planned) {
  if (!progress.stage) return [h("p", {}, "Starting …")];
  const calls = progress.calls ?? 0;
  const parts = [`${count(calls)} of about ${many(Math.max(planned, calls), "call")}`];
  if (progress.per_minute) parts.push(`${count(progress.per_minute)} a minute`);
  parts.push(`${count(progress.tokens ?? 0)} tokens`);
  if (progress.usd) parts.push(dollars(progress.usd));
  if (progress.limited) parts.push(`${count(progress.limited)} × 429`);
  if (progress.waiting_s >= 1) parts.push(`waiting ${progress.waiting_s.toFixed(0)} s`);
  if (progress.calls_left) parts.push(`about ${count(progress.calls_left)} calls left`);
  const bar = planned ? h("progress", { max: planned, value: Math.min(calls, planned), "aria-label": "calls" }) : null;
  return [h("p", {}, h("b", {}, progress.stage), progress.units ? ` ${count(Math.min(progress.units_done, progress.units))} of ${count(progress.units)} units` : ""), bar, h("p", { class: "soft" }, parts.join(" · "))].filter(Boolean);
}
