// Call the tools of `hirag-dist mcp` with the TypeScript SDK.
//
//   node client.mjs http://127.0.0.1:8765/mcp QUESTION        (token in HIRAG_TOKEN)
//   node client.mjs stdio QUESTION hirag-dist mcp --index my-index
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [target, question, command, ...args] = process.argv.slice(2);
const token = process.env.HIRAG_TOKEN;
const transport =
  target === "stdio"
    ? new StdioClientTransport({ command, args, env: { ...process.env } })
    : new StreamableHTTPClientTransport(new URL(target), {
        requestInit: token ? { headers: { Authorization: `Bearer ${token}` } } : {},
      });

const client = new Client({ name: "example", version: "1.0.0" });
await client.connect(transport);
const { tools } = await client.listTools();
console.log("tools:", tools.map((tool) => tool.name).join(" "));

// The SDK checks structured content against the tool's output schema, and raises if they differ.
const call = async (name, options, onprogress) => {
  const result = await client.callTool({ name, arguments: options }, undefined, { onprogress });
  if (result.isError) console.log(`${name}: error: ${result.content[0].text}`);
  return result.isError ? undefined : result.structuredContent;
};
const found = await call("search", { question });
const named = (kind) => found.references.filter((reference) => reference.kind === kind);
console.log("search:", named("entity").map((entity) => entity.title).join(", "));
const [first, second] = named("entity");
const entity = await call("entity", { entity: first.id });
console.log("entity:", first.title, "relations:", entity.relation_count);
if (second) {
  const path = await call("path_between", { source: first.title, target: second.title });
  console.log("path:", path.references.filter(({ kind }) => kind === "entity").map(({ title }) => title).join(" - "));
}
const [community] = named("community");
if (community) {
  await call("report", { community_id: community.id });
  console.log("report:", community.title);
}
const document = await call("document", { document_id: named("chunk")[0].id });
const inMarks = (text) => text.split("\n").slice(2, -1).join("\n"); // after the line that says that it is data
console.log("document:", inMarks(document.context).slice(0, 60));
const steps = [];
const answer = await call("answer", { question }, ({ message }) => message && steps.push(message));
console.log("answer:", inMarks(answer.answer));
console.log("progress:", steps[0]);
console.log("counts:", JSON.stringify((await call("describe_index", {})).counts));
await call("entity", { entity: "no such entity" });
await client.close();
