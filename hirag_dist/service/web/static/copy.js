// Texts to paste elsewhere: an answer with what it cites, and links.

/** An answer in Markdown: the question, the text, and a list of what its references name. */
export function answerText(question, answer, retrieval) {
  const sources = new Map(retrieval.sources.map((one) => [one.chunk_id, one]));
  const lines = answer.citations.map((one) => {
    const source = sources.get(one.id);
    const where = source ? [`characters ${source.start}–${source.end}`, source.uri].filter(Boolean).join(", ") : one.kind;
    return `[${one.ref}] ${one.title || one.id} (${where})`;
  });
  return [`**${question.trim()}**`, answer.text.trim(), lines.join("\n"), `Snapshot ${retrieval.snapshot_id}${answer.model ? `, ${answer.model}` : ""}`].filter(Boolean).join("\n\n");
}

/** Copies a text and says so on the button for a moment. */
export async function copy(button, text, say) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
    button.textContent = "Copied";
  } catch {
    say("The browser did not allow it to be copied.");
    button.textContent = "Not allowed";
  }
  setTimeout(() => {
    button.textContent = said;
  }, 1600);
}
