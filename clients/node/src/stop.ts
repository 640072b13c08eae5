/** A Stop ends the waits of one call, when the caller's signal fires or the Client is closed. */
export class Stop {
  stopped = false;
  reason: unknown;
  /** The error of the last request of the call. */
  failure: unknown;
  private readonly listeners = new Set<(reason: unknown) => void>();
  private poked = false;
  private wakeUp = (): void => undefined;

  constructor(private readonly signal?: AbortSignal) {
    if (signal?.aborted) this.aborted();
    else signal?.addEventListener("abort", this.aborted);
  }

  private readonly aborted = (): void => this.stop(this.signal?.reason);

  stop(reason: unknown): void {
    if (this.stopped) return;
    this.stopped = true;
    this.reason = reason;
    for (const listener of this.listeners) listener(reason);
  }

  /** end lets go of the signal. */
  end(): void {
    this.signal?.removeEventListener("abort", this.aborted);
  }

  /** listen calls f with the reason, at once if it has stopped. The result ends that. */
  listen(f: (reason: unknown) => void): () => void {
    if (this.stopped) f(this.reason);
    else this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  /** wait settles as the promise, or rejects with the reason. */
  wait<T>(promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.listen(reject);
      const settle = <V>(f: (value: V) => void) => (value: V): void => {
        this.listeners.delete(reject);
        f(value);
      };
      promise.then(settle(resolve), settle(reject));
    });
  }

  /** sleep returns after ms milliseconds or a wake. Its timer keeps the process alive. */
  async sleep(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => {
      this.wakeUp = resolve;
      if (ms <= 0 || this.poked) resolve();
      else timer = setTimeout(resolve, ms);
    });
    await this.wait(over).finally(() => clearTimeout(timer));
    if (ms > 0) this.poked = false;
  }

  /** wake ends the present sleep, or the next one. */
  wake(): void {
    this.poked = true;
    this.wakeUp();
  }
}
