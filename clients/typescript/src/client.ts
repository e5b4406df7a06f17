import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  createClient,
  type CallOptions as ConnectOptions,
  type Client,
  type Interceptor,
} from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { HiragError, pauseMs } from "./errors.js";
import {
  QueryService,
  type FinalAnswer,
  type FindPathRequestSchema,
  type FindPathResponse,
  type GetCommunityRequestSchema,
  type GetCommunityResponse,
  type GetDocumentRequestSchema,
  type GetDocumentResponse,
  type GetEntityRequestSchema,
  type GetEntityResponse,
  type IndexEntry,
  type IndexInfo,
  type Level,
  type QuerySchema,
  type Retrieval,
} from "./gen/hirag/query/v1/query_pb.js";

/** A question, or a query with the settings of its retrieval. */
export type Question = string | MessageInitShape<typeof QuerySchema>;

export interface ClientOptions {
  /** Bearer token. Without TLS it crosses the network in the clear. */
  token?: string;
  /** File with the token, read at each call, so that it may be replaced. */
  tokenFile?: string;
  /** PEM of the authorities that may have signed the service's certificate; the system's by default. */
  ca?: string | Buffer;
  /** PEM of the client's own certificate chain and key, for mTLS. */
  cert?: string | Buffer;
  key?: string | Buffer;
  /** Milliseconds for a call with all its retries; 60,000 by default. */
  timeoutMs?: number;
  /** Further attempts of a call of which no part of the reply had arrived; 3 by default. */
  retries?: number;
  /** Name of the index to ask, in a service with several. */
  index?: string;
}

export interface CallOptions {
  /** Milliseconds for this call, retries included. */
  timeoutMs?: number;
  /** Bearer token of this call, instead of the client's. */
  token?: string;
  /** Name of the call in the service's log: 1 to 64 of A-Z a-z 0-9 . _ -. */
  requestId?: string;
  /** Name of the index to ask, instead of the client's. */
  index?: string;
  /** Cancels the call; its work stops on the service too. */
  signal?: AbortSignal;
}

/** Parts of a retrieval to leave out of the reply. */
export interface Omissions {
  omitContext?: boolean;
  omitSourceText?: boolean;
}

/** A piece of an answer: the retrieval behind it, the next piece of the text, or the end with its citations. */
export type AnswerPart =
  | { kind: "retrieval"; retrieval: Retrieval }
  | { kind: "text"; text: string }
  | { kind: "answer"; answer: FinalAnswer };

/**
 * Client of a running service. Each call takes `CallOptions`, and rejects with a `HiragError`. A call that did not begin
 * is retried where the service allows it; a reply that was interrupted is not, since an answer would be paid for twice.
 *
 *     const client = new HiragClient("http://127.0.0.1:50051");
 *     const { text, citations } = await client.answer("Who built the lighthouse?");
 *     client.close();
 */
export class HiragClient {
  readonly #client: Client<typeof QueryService>;
  readonly #options: ClientOptions;
  readonly #connection: Http2SessionManager;

  /** @param baseUrl http://HOST:PORT, or https:// for TLS */
  constructor(baseUrl: string, options: ClientOptions = {}) {
    if (options.token !== undefined && options.tokenFile !== undefined) {
      throw new TypeError("give either token or tokenFile, not both");
    }
    if ((options.cert === undefined) !== (options.key === undefined)) {
      throw new TypeError("a client certificate needs both cert and key");
    }
    this.#options = options;
    const { ca, cert, key } = options;
    const ping = { pingIntervalMs: 30_000, pingTimeoutMs: 20_000 }; // services refuse more than one in 10 s
    this.#connection = new Http2SessionManager(baseUrl, ping, { ...(ca && { ca }), ...(cert && { cert, key }) });
    const transport = createGrpcTransport({
      baseUrl,
      interceptors: [this.#authorized],
      sessionManager: this.#connection,
    });
    this.#client = createClient(QueryService, transport);
  }

  /** Closes the connection, so that the process can end. Calls in progress are cancelled. */
  close(): void {
    this.#connection.abort();
  }

  /** Returns the entities, reports, paths and sources that the index has for a question. */
  async retrieve(question: Question, options: CallOptions & Omissions = {}): Promise<Retrieval> {
    const request = this.#request(question, options);
    return found((await this.#call((call) => this.#client.retrieve(request, call), options)).retrieval);
  }

  /** Yields each level as soon as it is ready, with the result so far, and the whole retrieval at the end. */
  async *retrieveStream(
    question: Question,
    options: CallOptions & Omissions = {},
  ): AsyncGenerator<{ level: Level; retrieval: Retrieval }, void> {
    const request = this.#request(question, options);
    for await (const { level, retrieval } of this.#stream((call) => this.#client.retrieveStream(request, call), options)) {
      yield { level, retrieval: found(retrieval) };
    }
  }

  /** Returns the answer to a question, with its citations and the retrieval behind it. */
  async answer(
    question: Question,
    options: CallOptions & Omissions = {},
  ): Promise<FinalAnswer & { retrieval: Retrieval }> {
    let retrieval: Retrieval | undefined;
    for await (const part of this.answerStream(question, options)) {
      if (part.kind === "retrieval") retrieval = part.retrieval;
      if (part.kind === "answer") return { ...part.answer, retrieval: found(part.answer.retrieval ?? retrieval) };
    }
    throw new HiragError("the service ended its stream without an answer", Code.DataLoss, "", "", undefined, undefined);
  }

  /** Yields the retrieval, the text in pieces, and the answer. Leaving the loop cancels the call. */
  async *answerStream(question: Question, options: CallOptions & Omissions = {}): AsyncGenerator<AnswerPart, void> {
    const request = this.#request(question, options);
    for await (const { part } of this.#stream((call) => this.#client.answer(request, call), options)) {
      if (part.case === "retrieval") yield { kind: "retrieval", retrieval: part.value };
      if (part.case === "text") yield { kind: "text", text: part.value };
      if (part.case === "answer") yield { kind: "answer", answer: part.value };
    }
  }

  /** Returns the description of the snapshot that is being served. */
  async describe(options: CallOptions = {}): Promise<IndexInfo> {
    const request = { index: this.#index(options) };
    return found((await this.#call((call) => this.#client.describeIndex(request, call), options)).info);
  }

  /** Returns the indexes that the caller may ask, ordered by name. */
  async listIndexes(options: CallOptions = {}): Promise<IndexEntry[]> {
    const entries: IndexEntry[] = [];
    let pageToken = "";
    do {
      const page = await this.#call((call) => this.#client.listIndexes({ pageToken }, call), options);
      entries.push(...page.indexes);
      pageToken = page.nextPageToken;
    } while (pageToken);
    return entries;
  }

  /** Returns an entity, by id or name, with its surroundings. */
  getEntity(
    request: MessageInitShape<typeof GetEntityRequestSchema>,
    options: CallOptions = {},
  ): Promise<GetEntityResponse> {
    return this.#call((call) => this.#client.getEntity({ index: this.#index(options), ...request }, call), options);
  }

  /** Returns a shortest path between two entities. */
  findPath(
    request: MessageInitShape<typeof FindPathRequestSchema>,
    options: CallOptions = {},
  ): Promise<FindPathResponse> {
    return this.#call((call) => this.#client.findPath({ index: this.#index(options), ...request }, call), options);
  }

  /** Returns a community with its report and its members. */
  getCommunity(
    request: MessageInitShape<typeof GetCommunityRequestSchema>,
    options: CallOptions = {},
  ): Promise<GetCommunityResponse> {
    return this.#call((call) => this.#client.getCommunity({ index: this.#index(options), ...request }, call), options);
  }

  /** Returns a document, its text and its chunks. */
  getDocument(
    request: MessageInitShape<typeof GetDocumentRequestSchema>,
    options: CallOptions = {},
  ): Promise<GetDocumentResponse> {
    return this.#call((call) => this.#client.getDocument({ index: this.#index(options), ...request }, call), options);
  }

  /** Puts the client's token on each request that has none of its own. */
  readonly #authorized: Interceptor = (next) => (request) => {
    const { token, tokenFile } = this.#options;
    if (!request.header.has("authorization")) {
      const own = tokenFile === undefined ? token : readFileSync(tokenFile, "utf8").trim();
      if (own) request.header.set("authorization", `Bearer ${own}`);
    }
    return next(request);
  };

  #index(options: CallOptions): string {
    return options.index ?? this.#options.index ?? "";
  }

  #request(question: Question, options: CallOptions & Omissions) {
    const query = typeof question === "string" ? { question } : question;
    const { omitContext = false, omitSourceText = false } = options;
    return { query, omitContext, omitSourceText, index: this.#index(options) };
  }

  async #call<T>(start: (call: ConnectOptions) => Promise<T>, options: CallOptions): Promise<T> {
    const attempts = this.#attempts(options);
    for (;;) {
      try {
        return await start(attempts.next());
      } catch (error) {
        await attempts.failed(error);
      }
    }
  }

  async *#stream<T>(start: (call: ConnectOptions) => AsyncIterable<T>, options: CallOptions): AsyncGenerator<T, void> {
    const attempts = this.#attempts(options);
    for (;;) {
      const left = new AbortController(); // ends the call when the consumer leaves its loop
      let begun = false;
      let messages: AsyncIterator<T> | undefined;
      try {
        const call = attempts.next();
        const signal = call.signal ? AbortSignal.any([call.signal, left.signal]) : left.signal;
        messages = start({ ...call, signal })[Symbol.asyncIterator]();
        for (;;) {
          const next = await messages.next();
          if (next.done) {
            messages = undefined;
            return;
          }
          begun = true;
          yield next.value;
        }
      } catch (error) {
        messages = undefined;
        if (begun) throw HiragError.from(error);
        await attempts.failed(error);
      } finally {
        if (messages) {
          left.abort();
          await messages.next().catch(() => undefined); // ends the timer of its deadline, which would keep the process
        }
      }
    }
  }

  /** Returns the attempts of one call: the options of the next, and the pause after one that failed. */
  #attempts(options: CallOptions) {
    const { retries = 3 } = this.#options;
    const until = Date.now() + (options.timeoutMs ?? this.#options.timeoutMs ?? 60_000);
    const headers: Record<string, string> = {};
    if (options.token !== undefined) headers["authorization"] = `Bearer ${options.token}`;
    if (options.requestId !== undefined) headers["x-request-id"] = options.requestId;
    let attempt = 0;
    return {
      next: (): ConnectOptions => ({
        headers,
        timeoutMs: Math.max(1, until - Date.now()),
        ...(options.signal && { signal: options.signal }),
      }),
      failed: async (thrown: unknown): Promise<void> => {
        const error = ConnectError.from(thrown);
        const pause = options.signal?.aborted || attempt >= retries ? undefined : pauseMs(error, attempt);
        attempt += 1;
        if (pause === undefined || Date.now() + pause >= until) throw HiragError.from(error);
        await sleep(pause, undefined, options.signal && { signal: options.signal }).catch(() => {
          throw HiragError.from(error);
        });
      },
    };
  }
}

function found<T>(part: T | undefined): T {
  if (part === undefined) {
    throw new HiragError("the service sent a reply without its content", Code.DataLoss, "", "", undefined, undefined);
  }
  return part;
}
