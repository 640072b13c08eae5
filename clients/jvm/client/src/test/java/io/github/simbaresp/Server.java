package io.github.simbaresp;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;

/** A server in memory. The environment variable SIMBA_RESP has the path of its program. */
public final class Server implements AutoCloseable {
    private final Process process;
    private final int port;

    /** Starts a server, or skips the test if there is no program. */
    public Server(String... options) throws Exception {
        String program = System.getenv("SIMBA_RESP");
        Assumptions.assumeTrue(program != null, "SIMBA_RESP is not set");
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        List<String> command = new ArrayList<>(List.of(program, "--addr", "127.0.0.1:" + port, "--durability", "memory"));
        command.addAll(List.of(options));
        process = new ProcessBuilder(command)
            .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        while (!answers()) {
            Thread.sleep(20);
        }
    }

    private boolean answers() throws IOException {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            return true;
        } catch (java.net.ConnectException e) {
            if (!process.isAlive()) {
                throw new IOException("the server has ended");
            }
            return false;
        }
    }

    public int port() {
        return port;
    }

    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    @Override
    public void close() throws Exception {
        process.destroyForcibly().waitFor(5, TimeUnit.SECONDS);
    }
}
