/** Client of the hirag-dist query service for Node.js: gRPC by Connect, messages as the protocol has them. */

export { HiragClient, type AnswerPart, type CallOptions, type ClientOptions, type Question } from "./client.js";
export { HiragError } from "./errors.js";
export * from "./gen/hirag/query/v1/query_pb.js";
