// A server for the tests, and a proxy in front of it that can go deaf.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import net from "node:net";

export interface Server {
  port: number;
  kill(): Promise<void>;
}

/** startServer starts the server's program, which SIMBA_RESP names, with its state in memory. */
export async function startServer(port = 0): Promise<Server> {
  const args = ["--addr", `127.0.0.1:${port}`, "--durability", "memory"];
  const child: ChildProcess = spawn(process.env["SIMBA_RESP"] ?? "simba-resp", args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr!.on("data", (data) => (log += data));
  while (!/msg=ready addr=\S+:(\d+)/.test(log)) {
    if (child.exitCode !== null) throw new Error(`the server ends: ${log}`);
    await Promise.race([once(child.stderr!, "data"), once(child, "exit")]);
  }
  return {
    port: Number(/msg=ready addr=\S+:(\d+)/.exec(log)![1]),
    async kill() {
      child.kill("SIGKILL");
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}

export interface Proxy {
  port: number;
  /** While it is set, no byte passes, in no direction. A connection that has lost one stays deaf. */
  deaf: boolean;
  /** While it is set, no reply passes. A connection that has lost one is deaf. */
  mute: boolean;
  /** cut ends all connections. */
  cut(): void;
  close(): void;
}

export async function startProxy(to: number): Promise<Proxy> {
  const open = new Set<net.Socket>();
  const server = net.createServer((from) => {
    const back = net.connect(to, "127.0.0.1");
    for (const socket of [from, back]) {
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(socket);
        from.destroy();
        back.destroy();
      });
    }
    let deaf = false;
    from.on("data", (data) => (deaf ||= proxy.deaf) || back.write(data));
    back.on("data", (data) => (deaf ||= proxy.deaf || proxy.mute) || from.write(data));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = (): void => open.forEach((socket) => socket.destroy());
  const proxy = {
    port: (server.address() as net.AddressInfo).port,
    deaf: false,
    mute: false,
    cut,
    close: () => {
      cut();
      server.close();
    },
  };
  return proxy;
}
