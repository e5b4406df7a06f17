// Print an answer while it is written, and its citations.
//
//     clients/typescript/build.sh && node clients/typescript/dist/examples/ask.js http://127.0.0.1:50051 "Who built the lighthouse?"
//
// HIRAG_TOKEN_FILE names the file of a token, HIRAG_CA the PEM file of the authority that signed the service. An
// application outside this repository imports from "hirag-dist-client".

import { readFileSync } from "node:fs";
import { HiragClient, HiragError, Mode, type ClientOptions } from "../src/index.js";

async function ask(baseUrl: string, question: string): Promise<void> {
  const options: ClientOptions = { timeoutMs: 60_000 };
  if (process.env.HIRAG_TOKEN_FILE) options.tokenFile = process.env.HIRAG_TOKEN_FILE;
  if (process.env.HIRAG_CA) options.ca = readFileSync(process.env.HIRAG_CA);
  const client = new HiragClient(baseUrl, options);
  try {
    await print(client, question);
  } finally {
    client.close();
  }
}

async function print(client: HiragClient, question: string): Promise<void> {
  const info = await client.describe();
  console.log(`Snapshot ${info.snapshotId}: ${info.counts.entities ?? 0n} entities`);

  for await (const part of client.answerStream({ question, mode: Mode.HIRAG }, { omitContext: true })) {
    switch (part.kind) {
      case "retrieval":
        for (const entity of part.retrieval.local) console.log(`  local   ${entity.name} (layer ${entity.layer}, ${entity.score?.toFixed(2) ?? "–"})`);
        for (const community of part.retrieval.communities) console.log(`  global  ${community.title}`);
        for (const path of part.retrieval.paths) console.log(`  bridge  ${path.connected ? path.entityNames.join(" → ") : "(no path)"}`);
        break;
      case "text":
        process.stdout.write(part.text);
        break;
      case "answer":
        console.log();
        for (const citation of part.answer.citations) console.log(`  [${citation.ref}] ${citation.title}`);
    }
  }
}

const [baseUrl, question] = process.argv.slice(2);
if (baseUrl === undefined || question === undefined) {
  console.error('usage: node ask.js http://HOST:PORT "question"');
  process.exit(2);
}
try {
  await ask(baseUrl, question);
} catch (error) {
  const failure = HiragError.from(error);
  console.error(`${failure.reason || "gRPC error"}: ${failure.message}`);
  process.exit(1);
}
