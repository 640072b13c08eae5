package io.github.simbaresp;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Stands before a server, keeps what clients send, and can eat it. */
final class Proxy implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Queue<Socket> sockets = new ConcurrentLinkedQueue<>();
    private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
    private final int target;
    private volatile boolean eats;

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

    /** Ends all connections. */
    void cut() throws IOException {
        for (Socket socket; (socket = sockets.poll()) != null; ) {
            socket.close();
        }
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
        try (from; to) {
            for (int n; (n = in.read(buffer)) >= 0; ) {
                if (requests) {
                    synchronized (sent) {
                        sent.write(buffer, 0, n);
                    }
                }
                if (!eats) {
                    to.getOutputStream().write(buffer, 0, n);
                }
            }
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }
}
