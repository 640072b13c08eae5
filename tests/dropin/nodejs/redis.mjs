// The connection, and the program's arguments: host, port, mutex and the number of rounds.
import Redis from "ioredis";

const [, , host, port, name, count] = process.argv;

export const redis = new Redis(Number(port), host);
export const mutex = name;
export const rounds = Number(count);
