package io.github.simbaresp;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Stands before a server, keeps what clients send, and can eat it. */
final class Proxy implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Queue<Socket> sockets = new ConcurrentLinkedQueue<>();
    private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
    private final int target;
    private volatile boolean eats;
    private volatile long delay;
    private volatile int connections;

    Proxy(int target) throws IOException {
        this.target = target;
        background(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    /** Makes the proxy eat all requests and replies. */
    void eat(boolean on) {
        eats = on;
    }

    /** Makes the proxy hold back the renewals, and the later requests of their connections, in milliseconds. */
    void delay(long millis) {
        delay = millis;
    }

    /** Ends all connections. */
    void cut() throws IOException {
        for (Socket socket; (socket = sockets.poll()) != null; ) {
            socket.close();
        }
    }

    /** Returns how many connections there were. */
    int connections() {
        return connections;
    }

    /** Returns how often the clients have sent the text, also what was eaten. */
    int count(String text) {
        synchronized (sent) {
            return sent.toString(StandardCharsets.UTF_8).split(text, -1).length - 1;
        }
    }

    private interface Body {
        void run() throws IOException;
    }

    private static void background(Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (IOException e) {
                return; // closed
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            connections++;
            Socket server = new Socket(InetAddress.getLoopbackAddress(), target);
            sockets.add(client);
            sockets.add(server);
            background(() -> copy(client, server, true));
            background(() -> copy(server, client, false));
        }
    }

    private void copy(Socket from, Socket to, boolean requests) throws IOException {
        byte[] buffer = new byte[8192];
        InputStream in = from.getInputStream();
        boolean slow = false;
        ScheduledExecutorService line = Executors.newSingleThreadScheduledExecutor();
        try (from; to) {
            for (int n; (n = in.read(buffer)) >= 0; ) {
                if (requests) {
                    synchronized (sent) {
                        sent.write(buffer, 0, n);
                    }
                }
                byte[] chunk = Arrays.copyOf(buffer, n);
                slow |= requests && new String(chunk, StandardCharsets.UTF_8).contains("SIMBA.GUARD");
                if (!eats) {
                    line.schedule(() -> write(to, chunk), slow ? delay : 0, TimeUnit.MILLISECONDS);
                }
            }
        } finally {
            line.shutdownNow();
        }
    }

    private static void write(Socket to, byte[] chunk) {
        try {
            to.getOutputStream().write(chunk);
        } catch (IOException e) {
            return; // closed
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }
}
