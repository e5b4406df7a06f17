import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";

/** A failed call. The message says what to do. */
export class HiragError extends Error {
  override readonly name = "HiragError";

  constructor(
    message: string,
    /** The code of gRPC. */
    readonly code: Code,
    /** The service's class of error in capitals, such as INVALID_QUERY or QUOTA_EXCEEDED; "" if it raised none. */
    readonly reason: string,
    /** The name of the call in the service's log; "" if no service was reached. */
    readonly requestId: string,
    /** Milliseconds after which the service advises to try again. */
    readonly retryDelayMs: number | undefined,
    cause: unknown,
  ) {
    super(message, { cause });
  }

  /** Returns the error of a call, from anything that it threw. */
  static from(thrown: unknown): HiragError {
    if (thrown instanceof HiragError) return thrown;
    const error = ConnectError.from(thrown);
    const [info] = error.findDetails(ErrorInfoSchema);
    const [request] = error.findDetails(RequestInfoSchema);
    const ours = info?.domain === "hirag_dist";
    const requestId = request?.requestId ?? error.metadata.get("x-request-id") ?? "";
    return new HiragError(error.rawMessage, error.code, ours ? info.reason : "", requestId, retryDelayMs(error), thrown);
  }
}

const RETRIED = new Set([Code.Unavailable, Code.ResourceExhausted, Code.Canceled]);
const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 2_000;

/**
 * Returns the milliseconds to wait before the next attempt, or undefined where none should follow. The service forbids
 * or delays it in its trailers; without a word from it the delay grows from 0.1 s to 2 s, with jitter.
 */
export function pauseMs(error: ConnectError, attempt: number): number | undefined {
  if (!RETRIED.has(error.code)) return undefined;
  const pushback = error.metadata.get("grpc-retry-pushback-ms");
  if (pushback !== null) {
    const ms = Number(pushback);
    return ms >= 0 ? ms : undefined;
  }
  const backoff = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** attempt);
  return Math.max(retryDelayMs(error) ?? 0, backoff * (0.8 + 0.4 * Math.random()));
}

function retryDelayMs(error: ConnectError): number | undefined {
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay && Number(delay.seconds) * 1e3 + delay.nanos / 1e6;
}
