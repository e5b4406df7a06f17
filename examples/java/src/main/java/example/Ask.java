package example;

import hirag.query.v1.QueryOuterClass.AnswerRequest;
import hirag.query.v1.QueryOuterClass.AnswerResponse;
import hirag.query.v1.QueryOuterClass.Citation;
import hirag.query.v1.QueryOuterClass.DescribeIndexRequest;
import hirag.query.v1.QueryOuterClass.Entity;
import hirag.query.v1.QueryOuterClass.IndexInfo;
import hirag.query.v1.QueryOuterClass.Mode;
import hirag.query.v1.QueryOuterClass.Path;
import hirag.query.v1.QueryOuterClass.Query;
import hirag.query.v1.QueryServiceGrpc;
import hirag.query.v1.QueryServiceGrpc.QueryServiceBlockingStub;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Prints an answer while it is written, and its citations.
 *
 * <pre>mvn -q package exec:java -Dexec.args="127.0.0.1:50051 'Who built the lighthouse?'"</pre>
 *
 * HIRAG_TOKEN_FILE names the file of a token, HIRAG_CA the PEM file of the authority that signed the service.
 */
public final class Ask {
    private static final long TIMEOUT_S = 60;

    // the service says in its trailers when to try again, or not at all, and gRPC obeys
    private static final Map<String, ?> SERVICE_CONFIG = Map.of(
        "methodConfig",
        List.of(Map.of(
            "name", List.of(Map.of("service", QueryServiceGrpc.SERVICE_NAME)),
            "retryPolicy",
            Map.of(
                "maxAttempts", 4.0,
                "initialBackoff", "0.1s",
                "maxBackoff", "2s",
                "backoffMultiplier", 2.0,
                "retryableStatusCodes", List.of("UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED")))));

    public static void main(String[] arguments) throws IOException, InterruptedException {
        if (arguments.length != 2) {
            System.err.println("usage: Ask HOST:PORT QUESTION");
            System.exit(2);
        }
        ManagedChannel channel = Grpc.newChannelBuilder(arguments[0], credentials())
            .defaultServiceConfig(SERVICE_CONFIG)
            .enableRetry()
            .maxInboundMessageSize(16 << 20)
            .build();
        int code = 0;
        try {
            ask(QueryServiceGrpc.newBlockingStub(channel), arguments[1]);
        } catch (StatusRuntimeException error) {
            System.err.println(error.getStatus().getCode() + ": " + error.getStatus().getDescription());
            code = 1;
        } finally {
            channel.shutdown().awaitTermination(5, TimeUnit.SECONDS);
        }
        System.exit(code);
    }

    private static void ask(QueryServiceBlockingStub plain, String question) throws IOException {
        QueryServiceBlockingStub stub = authorized(plain);
        IndexInfo info = stub.withDeadlineAfter(TIMEOUT_S, TimeUnit.SECONDS)
            .describeIndex(DescribeIndexRequest.getDefaultInstance())
            .getInfo();
        System.out.printf("Snapshot %s: %d entities%n", info.getSnapshotId(), info.getCountsOrDefault("entities", 0));

        Query query = Query.newBuilder().setQuestion(question).setMode(Mode.MODE_HIRAG).build();
        AnswerRequest request = AnswerRequest.newBuilder().setQuery(query).setOmitContext(true).build();
        Iterator<AnswerResponse> parts = stub.withDeadlineAfter(TIMEOUT_S, TimeUnit.SECONDS).answer(request);
        while (parts.hasNext()) {
            AnswerResponse part = parts.next();
            switch (part.getPartCase()) {
                case RETRIEVAL -> {
                    for (Entity entity : part.getRetrieval().getLocalList()) {
                        System.out.printf("  local   %s (layer %d)%n", entity.getName(), entity.getLayer());
                    }
                    for (Path path : part.getRetrieval().getPathsList()) {
                        String shown = path.getConnected() ? String.join(" → ", path.getEntityNamesList()) : "(no path)";
                        System.out.println("  bridge  " + shown);
                    }
                }
                case TEXT -> System.out.print(part.getText());
                case ANSWER -> {
                    System.out.println();
                    for (Citation citation : part.getAnswer().getCitationsList()) {
                        System.out.printf("  [%s] %s%n", citation.getRef(), citation.getTitle());
                    }
                }
                default -> { } // of a later version
            }
        }
    }

    private static ChannelCredentials credentials() throws IOException {
        String authority = System.getenv("HIRAG_CA");
        if (authority == null) {
            return InsecureChannelCredentials.create();
        }
        return TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
    }

    private static QueryServiceBlockingStub authorized(QueryServiceBlockingStub stub) throws IOException {
        String file = System.getenv("HIRAG_TOKEN_FILE");
        if (file == null) {
            return stub;
        }
        Metadata headers = new Metadata();
        Metadata.Key<String> key = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
        headers.put(key, "Bearer " + Files.readString(java.nio.file.Path.of(file)).strip());
        return stub.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
    }

    private Ask() {}
}
