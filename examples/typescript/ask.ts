// Print an answer while it is written, and its citations.
//
//     examples/typescript/build.sh && node examples/typescript/dist/ask.js http://127.0.0.1:50051 "Who built the lighthouse?"
//
// HIRAG_TOKEN_FILE names the file of a token, HIRAG_CA the PEM file of the authority that signed the service.

import { readFileSync } from "node:fs";
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Mode, QueryService } from "./gen/hirag/query/v1/query_pb.js";

const TIMEOUT_MS = 60_000;

/** Puts the token on each request; read each time, so that it may be replaced. */
const authorized: Interceptor = (next) => (request) => {
  const file = process.env.HIRAG_TOKEN_FILE;
  if (file) request.header.set("authorization", `Bearer ${readFileSync(file, "utf8").trim()}`);
  return next(request);
};

async function ask(baseUrl: string, question: string): Promise<void> {
  const ca = process.env.HIRAG_CA;
  const transport = createGrpcTransport({
    baseUrl,
    interceptors: [authorized],
    ...(ca && { nodeOptions: { ca: readFileSync(ca) } }),
  });
  const client = createClient(QueryService, transport);

  const { info } = await client.describeIndex({}, { timeoutMs: TIMEOUT_MS });
  console.log(`Snapshot ${info?.snapshotId}: ${info?.counts.entities ?? 0n} entities`);

  const query = { question, mode: Mode.HIRAG };
  for await (const { part } of client.answer({ query, omitContext: true }, { timeoutMs: TIMEOUT_MS })) {
    switch (part.case) {
      case "retrieval":
        for (const entity of part.value.local) console.log(`  local   ${entity.name} (layer ${entity.layer}, ${entity.score?.toFixed(2) ?? "–"})`);
        for (const community of part.value.communities) console.log(`  global  ${community.title}`);
        for (const path of part.value.paths) console.log(`  bridge  ${path.connected ? path.entityNames.join(" → ") : "(no path)"}`);
        break;
      case "text":
        process.stdout.write(part.value);
        break;
      case "answer":
        console.log();
        for (const citation of part.value.citations) console.log(`  [${citation.ref}] ${citation.title}`);
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
  const failure = ConnectError.from(error);
  console.error(`${Code[failure.code]}: ${failure.rawMessage}`);
  process.exit(1);
}
