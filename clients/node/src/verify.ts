type Rule = readonly [type: string, text: string, fits: (value: never) => boolean];
const text: Rule = ["string", "a string of one character or more", (value: string) => value !== ""];
const size: Rule = ["number", "a positive number", (value: number) => value > 0 && value < Infinity];
const rules: Record<string, Rule> = {
  mutex: text, id: text, ttl: size, period: size,
  grace: ["number", "a number from 0 on", (value: number) => value >= 0 && value < Infinity],
  wait: ["number", "a number from 0 on", (value: number) => value >= 0],
  timeout: ["number", "a positive number below 2 ** 31 - 1", (ms: number) => ms > 0 && ms < 2 ** 31 - 1],
  work: ["function", "a function", () => true],
  signal: ["object", "an AbortSignal", (value: unknown) => value instanceof AbortSignal],
};

/**
 * verify throws a TypeError if an argument or an option has the wrong type, and a RangeError if its
 * value is out of range. An option may be undefined. It returns the other options.
 */
export function verify<T extends object>(args: object, options = {} as T): T {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  for (const [name, value] of [...Object.entries(args), ...given]) {
    const [type, text, fits] = rules[name] ?? [typeof value, "", () => true];
    if (typeof value === type && fits(value as never)) continue;
    const Fault = typeof value === type && type !== "object" ? RangeError : TypeError;
    throw new Fault(`${name} is not ${text}`);
  }
  return Object.fromEntries(given) as T;
}
